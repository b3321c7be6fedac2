"""Telling the faults of a device from the faults of a row, by the type and the text of an exception."""

from __future__ import annotations

from typing import Final

from cordwood_worker.backends import DeviceBroken, DeviceOutOfMemory

_OUT_OF_MEMORY_TYPES: Final = frozenset({"MemoryError", "OutOfMemoryError", "_ArrayMemoryError"})
_OUT_OF_MEMORY_TEXTS: Final = (
    "out of memory",  # torch.OutOfMemoryError, "CUDA error: out of memory", MPS
    "can't allocate memory",  # DefaultCPUAllocator
    "cublas_status_alloc_failed",
    "cudnn_status_alloc_failed",
    "cudaerrormemoryallocation",
)
_PASSING_TEXTS: Final = (
    "invalid configuration argument",
    "invalid argument",
    "too many resources requested for launch",
)
"""CUDA errors that refuse one launch and leave the context usable: the batch that caused them is at fault."""
_BROKEN_TEXTS: Final = (
    "cuda error",
    "cuda driver error",
    "cudaerror",  # cudaErrorLaunchFailure and its siblings by name
    "device-side assert",
    "hip error",
    "cublas_status_",
    "cusolver_status_",
    "cudnn_status_",
    "gpu is lost",
    "cannot re-initialize cuda",  # torch in a process that was forked after CUDA was used
)


def device_fault(error: BaseException) -> DeviceOutOfMemory | DeviceBroken | None:
    """Return what the error says of the device, None if it says nothing: then the fault is a row's.

    Out of memory is recoverable, on a GPU and on the CPU. Any other CUDA error is taken to be sticky, as most are
    (CUDA C++ Programming Guide, "Error Checking": every later call returns the same error until the process ends),
    but for those that only refuse a launch.
    """
    names = {kind.__name__ for kind in type(error).__mro__}
    brief = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
    if names & _OUT_OF_MEMORY_TYPES:
        return DeviceOutOfMemory(brief)
    if "RuntimeError" not in names:
        return None
    text = str(error).lower()
    if any(part in text for part in _OUT_OF_MEMORY_TEXTS):
        return DeviceOutOfMemory(brief)
    if any(part in text for part in _BROKEN_TEXTS) and not any(part in text for part in _PASSING_TEXTS):
        return DeviceBroken(brief)
    return None
