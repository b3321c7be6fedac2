"""What runs a batch: the `Backend` protocol, what a backend says of itself, and the faults of a device.

Only the modules of this folder import torch, and only inside functions, so that a worker with another backend is
ready in under a second. `load_backend` makes the backend of a queue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from cordwood.options import DEFAULT_OPTIONS
from cordwood_worker.backends.loading import load_backend

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from cordwood.job import Input
    from cordwood.options import EmbedOptions
    from cordwood.settings import BatchBudget
    from cordwood_worker.batch import Batch, Tokens

__all__ = [
    "Backend",
    "CountingBackend",
    "DeviceBroken",
    "DeviceOutOfMemory",
    "OverlappingBackend",
    "Spec",
    "Staging",
    "WarmUp",
    "load_backend",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What a backend serves, published for producers and written into every result.

    `dim` is the width of a row's output. `max_tokens` is the longest row, special tokens included. `fingerprint` tells
    weights, tokenizers and configurations apart. `precision` is the one that is in use, not the one asked for. `packed`
    says that rows run without padding, so that a batch costs its tokens and not its cells; `normalized`, that outputs
    are unit vectors.
    """

    task: str
    model: str
    fingerprint: str
    dim: int
    max_tokens: int
    precision: str
    device: str
    backend: str
    labels: tuple[str, ...] = ()
    packed: bool = False
    normalized: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """What a backend learned by warming up: the batch size in tokens from which on more is not faster, 0 if unknown."""

    best_tokens: int = 0


class Backend(Protocol):
    """A model on a device.

    `tokenise` is called by one thread and `run` by another, at the same time; each is called by one thread only, so
    the two share nothing that changes.
    """

    @property
    def spec(self) -> Spec:
        """What it serves."""
        ...

    def tokenise(self, inputs: Sequence[Input], options: EmbedOptions = DEFAULT_OPTIONS) -> list[Tokens]:
        """Turn inputs into tokens, in order; raise ValueError for an input or an option that it cannot take."""
        ...

    def run(self, batch: Batch) -> NDArray[np.float32]:
        """Return the rows' outputs, shape (rows, spec.dim), in the order of the rows; no later call changes them.

        Raises DeviceOutOfMemory or DeviceBroken for those conditions; any other exception is a row's fault.
        """
        ...

    def warm_up(self, budget: BatchBudget) -> WarmUp:
        """Run what the first batches would otherwise pay for, none larger than the budget."""
        ...


class Staging(Protocol):
    """A batch that was laid out on a device and not begun yet."""

    def release(self) -> None:
        """Give up what it occupies."""
        ...


@runtime_checkable
class OverlappingBackend(Backend, Protocol):
    """A backend whose device can compute one batch while the next is laid out and the last one is copied back.

    `stage` is called by a thread of its own, `begin` and what it returns by that of `run`.
    """

    @property
    def overlaps(self) -> bool:
        """Whether it pays here; if not, only `run` is called."""
        ...

    def stage(self, batch: Batch) -> Staging:
        """Lay out a batch on the device; raises as `run` does."""
        ...

    def begin(self, batch: Batch, staged: Any) -> Callable[[], NDArray[np.float32]]:
        """Have the device begin a staged batch, and return what waits for its outputs; both raise as `run` does."""
        ...


@runtime_checkable
class CountingBackend(Protocol):
    """A backend that has something to count, such as rows that it computed twice."""

    def take_counts(self) -> Mapping[str, int]:
        """Return what happened since the last call, by its name in the queue's statistics; called as `run` is."""
        ...


class DeviceOutOfMemory(Exception):
    """The batch does not fit the device: run it in halves."""


class DeviceBroken(Exception):
    """The device answers nothing any more: end the process, acknowledge nothing."""
