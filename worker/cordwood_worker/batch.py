"""The plain data that flows through a worker: rows, batches and what came out."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Tokens:
    """One tokenised input: token IDs as the model wants them, special tokens included, cut to the model's limit.

    `type_ids` is None where all are 0. `truncated` says that the input was cut.
    """

    ids: Sequence[int]
    type_ids: Sequence[int] | None = None
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One tokenised input on its way to the device, and the job and position it came from.

    `arrived_s` is the worker's monotonic time at which its job was fetched, `deadline_s` that by which it should be
    done; `suspect` marks a job that was in the hands of a worker that died, and must run apart from others.
    """

    job_id: str
    index: int
    tokens: Tokens
    arrived_s: float
    suspect: bool = False
    lane: str = "normal"
    deadline_s: float = inf

    @property
    def length(self) -> int:
        """Its number of tokens, at least 1."""
        return max(1, len(self.tokens.ids))


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows that run together, in the order in which the backend must answer."""

    rows: tuple[Row, ...]

    @property
    def longest(self) -> int:
        """The length of its longest row, in tokens."""
        return max(row.length for row in self.rows)

    @property
    def real_tokens(self) -> int:
        """The tokens of its rows, padding not counted."""
        return sum(row.length for row in self.rows)

    @property
    def padded_tokens(self) -> int:
        """The cells of its padded matrix: rows times longest."""
        return len(self.rows) * self.longest


@dataclass(frozen=True, slots=True)
class RowOutput:
    """What the device made of one row: float32 values of shape (dim,) or (labels,)."""

    row: Row
    values: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class RowFailure:
    """Why a row has no output: a code to act on and a message to read.

    `transient` says that the row is not at fault, so that its job may be tried again.
    """

    row: Row
    code: str
    message: str
    transient: bool = False
