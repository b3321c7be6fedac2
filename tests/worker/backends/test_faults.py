"""An exception's type and text say whether the device or a row is at fault."""

from __future__ import annotations

import pytest

from cordwood_worker.backends import DeviceBroken, DeviceOutOfMemory
from cordwood_worker.backends.faults import device_fault


class OutOfMemoryError(RuntimeError):
    """Named as torch's own, which derives from RuntimeError too."""


class AcceleratorError(RuntimeError):
    """Named as torch's own."""


@pytest.mark.parametrize(
    "error",
    [
        OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.80 GiB"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:124] . DefaultCPUAllocator: can't allocate memory: 8 bytes"),
        RuntimeError("MPS backend out of memory (MPS allocated: 8.00 GB)"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        MemoryError(),
        MemoryError("Unable to allocate 8.00 GiB for an array"),
    ],
)
def test_out_of_memory_is_recoverable(error: Exception) -> None:
    """On a GPU and on the CPU, whatever the library calls it."""
    assert isinstance(device_fault(error), DeviceOutOfMemory)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: device-side assert triggered\nCUDA kernel errors might be reported later"),
        AcceleratorError("CUDA error: an illegal memory access was encountered"),
        RuntimeError("CUDA error: unspecified launch failure"),
        RuntimeError("cudaErrorLaunchFailure"),
        RuntimeError("CUDA error: uncorrectable ECC error encountered"),
        RuntimeError("CUDA error: no kernel image is available for execution on the device"),
        RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
        RuntimeError("HIP error: invalid device function"),
    ],
)
def test_a_sticky_error_means_a_broken_device(error: Exception) -> None:
    """The first line of the text is kept for the log."""
    fault = device_fault(error)
    assert isinstance(fault, DeviceBroken)
    assert str(error).splitlines()[0] in str(fault)
    assert "\n" not in str(fault)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("the text says: CUDA error: out of memory"),
        RuntimeError("The size of tensor a (512) must match the size of tensor b (514)"),
        RuntimeError("CUDA error: invalid configuration argument"),
        IndexError("index out of range in self"),
        RuntimeError(),
    ],
)
def test_anything_else_is_a_rows_fault(error: Exception) -> None:
    """Only errors of the runtime speak of the device, and a refused launch leaves it usable."""
    assert device_fault(error) is None


def test_torchs_own_error_is_known() -> None:
    """The type that torch raises today, by its name."""
    import torch

    assert isinstance(device_fault(torch.OutOfMemoryError("no room")), DeviceOutOfMemory)
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 58)
    assert isinstance(device_fault(caught.value), DeviceOutOfMemory)
