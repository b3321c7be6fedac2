"""Running texts through a backend, without a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cordwood_worker.batch import Batch, Row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from cordwood.job import Input
    from cordwood_worker.backends import Backend


def make_batch(backend: Backend, texts: Sequence[Input]) -> Batch:
    """Tokenise texts into one batch, in order."""
    return Batch(tuple(Row(f"job-{i}", 0, tokens, 0.0) for i, tokens in enumerate(backend.tokenise(texts))))


def embed(backend: Backend, texts: Sequence[Input], *, rows: int = 1_000) -> NDArray[np.float32]:
    """Return the vectors of texts, run in batches of so many rows, shape (texts, dim)."""
    starts = range(0, len(texts), rows)
    return np.concatenate([backend.run(make_batch(backend, texts[start : start + rows])) for start in starts])
