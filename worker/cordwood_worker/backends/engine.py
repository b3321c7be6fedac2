"""A sentence-transformers model on a device: lays out a batch, runs the modules, and gives one vector a row."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from cordwood_worker.backends.streams import await_copies, mark_copied

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from cordwood_worker.backends.feed import Feed, Staged
    from cordwood_worker.backends.placement import Placement
    from cordwood_worker.backends.pool import BufferPool, Lease
    from cordwood_worker.batch import Tokens


Module = Callable[[dict[str, Any]], dict[str, Any]]
"""What takes features and returns them with more in them, such as a module of sentence-transformers."""


class Running:
    """A batch that the device was given. `result` must be called once: it returns the buffers."""

    __slots__ = ("_copied", "_lease", "_staged")

    def __init__(self, staged: Staged, lease: Lease, copied: Any) -> None:
        self._staged = staged
        self._lease = lease
        self._copied = copied

    def result(self) -> NDArray[np.float32]:
        """Wait for the vectors; return them in row order, shape (rows, dim), in memory of their own."""
        try:
            if self._copied is not None:
                self._copied.synchronize()
            lines = self._lease.array[: self._staged.rows]
            output = np.empty(lines.shape, dtype=np.float32)
            output[slice(None) if self._staged.order is None else self._staged.order] = lines
            return output
        finally:
            self._lease.release()
            self._staged.release()


@dataclass(frozen=True, slots=True)
class Engine:
    """How the rows of a batch become vectors, without any care for what goes wrong.

    `name` is that of the backend. `modules` run in order on the features: the transformer in the precision of the
    placement, all others in fp32. `dim` cuts the output, None leaves it. `linears` are the transformer's linear layers
    as they run, each callable with (tokens, in_features).
    """

    name: str
    feed: Feed
    modules: tuple[Module, ...]
    placement: Placement
    pool: BufferPool
    dim: int | None = None
    linears: Sequence[Any] = field(default=())

    def run(self, tokens: Sequence[Tokens]) -> NDArray[np.float32]:
        """Lay out, run and fetch: float32 of shape (rows, dim), in the order of the rows."""
        return self.begin(self.feed.stage(tokens)).result()

    def begin(self, staged: Staged) -> Running:
        """Have the device compute a staged batch and copy the vectors to the host; on CUDA without waiting for it.

        The batch is released with its result, or at once if this raises.
        """
        import torch

        with ExitStack() as on_error:
            on_error.callback(staged.release)
            vectors = self._forward(staged)
            lease = self.pool.lease(tuple(vectors.shape), torch.float32)
            on_error.callback(lease.release)
            lease.tensor.copy_(vectors, non_blocking=True)
            copied = mark_copied(self.placement.device)
            on_error.pop_all()
        return Running(staged, lease, copied)

    def _forward(self, staged: Staged) -> Any:
        """Return the vectors as a float32 tensor on the device, in the order of the layout."""
        import torch

        first, *rest = self.modules
        with torch.inference_mode():
            tensors = [value for value in staged.features.values() if isinstance(value, torch.Tensor)]
            await_copies(staged.ready, tensors)
            features = first(dict(staged.features))
            for name, value in features.items():
                if isinstance(value, torch.Tensor) and value.is_floating_point():
                    features[name] = value.float()
            for module in rest:
                features = module(features)
            return features["sentence_embedding"][:, : self.dim]
