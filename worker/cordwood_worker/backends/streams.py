"""CUDA streams: copies to the device run beside the computation. On a CPU there is nothing to overlap."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


class CopyStream:
    """A stream of its own for copies to a CUDA device; on other devices it does nothing."""

    def __init__(self, device: str) -> None:
        self._stream: Any = None
        if device.startswith("cuda"):
            import torch

            cuda: Any = torch.cuda  # its Stream is untyped
            self._stream = cuda.Stream(device)

    def current(self) -> AbstractContextManager[Any]:
        """Have the operations of a block go to this stream."""
        if self._stream is None:
            return nullcontext()
        import torch

        return torch.cuda.stream(self._stream)

    def mark(self) -> Any:
        """Return an event that comes when all copies so far are done; None where there is no stream."""
        return None if self._stream is None else self._stream.record_event()


def await_copies(event: Any, tensors: list[Any]) -> None:
    """Have the current stream wait for the copies, and keep the tensors' memory until it has used them."""
    if event is None:
        return
    import torch

    stream = torch.cuda.current_stream()
    stream.wait_event(event)
    for tensor in tensors:
        tensor.record_stream(stream)


def mark_copied(device: str) -> Any:
    """Return an event that comes when the current stream has done what it was given; None on other devices."""
    if not device.startswith("cuda"):
        return None
    import torch

    return torch.cuda.current_stream().record_event()
