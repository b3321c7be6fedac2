"""What a batch costs in time, learned from the batches that ran. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cordwood_worker.batch import Batch

MEMORY: Final = 256
"""How many batches back a batch counts 1/e of the last one."""
KNOWN_AFTER: Final = 8
"""Before so many batches nothing is predicted."""
ERROR_MEMORY: Final = 32
LEAST_TOLERANCE: Final = 0.1
TOLERANCE_IN_ERRORS: Final = 2.0
"""A batch whose time is off by more than this many usual errors counts less, the more it is off."""
MOST_SWEEPS: Final = 64
SETTLED: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Work:
    """What a batch asks of a device: tokens computed, rows, and the sum of the squares that attention computes."""

    tokens: float
    rows: float
    squares: float


@dataclass(frozen=True, slots=True)
class Coefficients:
    """Seconds for each token, row and square, and for each batch whatever is in it; none is negative."""

    token_s: float = 0.0
    row_s: float = 0.0
    square_s: float = 0.0
    batch_s: float = 0.0


def padded_work(batch: Batch) -> Work:
    """The work of a padded matrix: rows times longest tokens, rows times longest² squares."""
    rows, longest = len(batch.rows), batch.longest
    return Work(rows * longest, rows, rows * longest * longest)


def packed_work(batch: Batch) -> Work:
    """The work of rows without padding: each attends to itself."""
    lengths = [row.length for row in batch.rows]
    return Work(sum(lengths), len(lengths), sum(length * length for length in lengths))


class CostModel:
    """`seconds = a·tokens + b·rows + c·squares + d` for one model on one device in one precision, learned online.

    The coefficients minimise the squares of the relative errors under a, b, c, d ≥ 0 (a negative one would promise
    time back for more work), where a batch's weight decays with e^(-age / MEMORY), and one that is off by more than is
    usual weighs less (P. J. Huber, "Robust estimation of a location parameter", 1964). The sums that this takes are
    kept, and coordinate descent goes on from the last solution when somebody asks: where the batches of late do not
    tell two coefficients apart, these stay as they were. Not safe for threads: each call takes and leaves it whole, but
    one thread notes at a time.
    """

    def __init__(self, work_of: Callable[[Batch], Work]) -> None:
        self._work_of = work_of
        self._products = [[0.0] * 4 for _ in range(4)]
        self._targets = [0.0] * 4
        self._solution = [0.0] * 4
        self._is_solved = True
        self._noted = 0
        self._error = 0.0
        self._usual = Work(1.0, 0.0, 0.0)

    @property
    def error(self) -> float:
        """How far off predictions were of late, as a part of the time that it took; the mean, 0.0 before any."""
        return self._error

    @property
    def is_known(self) -> bool:
        """Whether enough batches ran for a prediction."""
        return self._noted >= KNOWN_AFTER

    @property
    def coefficients(self) -> Coefficients:
        """What has been learned, in seconds; all 0.0 before anything has."""
        self._solve()
        return Coefficients(*self._solution)

    @property
    def batch_in_tokens(self) -> float:
        """The tokens that could be computed in the time that a batch takes whatever is in it; inf while unknown."""
        if not self.is_known:
            return inf
        learned = self.coefficients
        usual = self._usual.squares / self._usual.tokens
        token_s = learned.token_s + learned.square_s * usual
        return (learned.batch_s + learned.row_s) / token_s if token_s > 0 else inf

    def note(self, batch: Batch, seconds: float) -> None:
        """Learn that a batch took so long; a time of 0 or less teaches nothing."""
        if seconds > 0:
            self.note_work(self._work_of(batch), seconds)

    def note_work(self, work: Work, seconds: float) -> None:
        """Learn that this work took so long, which must be more than 0 seconds."""
        weight = 1.0
        if self.is_known:
            off = abs(self.seconds(work) - seconds) / seconds
            weight = min(1.0, max(LEAST_TOLERANCE, TOLERANCE_IN_ERRORS * self._error) / max(off, 1e-12))
            self._error += (off - self._error) / min(self._noted - KNOWN_AFTER + 1, ERROR_MEMORY)
        kept = 1.0 - 1.0 / MEMORY
        inputs = [part / seconds for part in (work.tokens, work.rows, work.squares, 1.0)]
        for row, own in enumerate(inputs):
            self._targets[row] = kept * self._targets[row] + weight * own
            self._products[row] = [
                kept * product + weight * own * other
                for product, other in zip(self._products[row], inputs, strict=True)
            ]
        usual = self._usual
        self._usual = Work(
            kept * usual.tokens + work.tokens, kept * usual.rows + work.rows, kept * usual.squares + work.squares
        )
        self._is_solved = False
        self._noted += 1

    def seconds(self, work: Work) -> float:
        """Predict how long this work takes; 0.0 before anything was learned."""
        self._solve()
        return _dot(self._solution, (work.tokens, work.rows, work.squares, 1.0))

    def seconds_of(self, tokens: float) -> float:
        """Predict how long a batch of so many tokens takes whose rows are as long as those of late."""
        share = tokens / self._usual.tokens
        return self.seconds(Work(tokens, self._usual.rows * share, self._usual.squares * share))

    def tokens_per_s(self, max_tokens: int) -> float:
        """The tokens that full batches of this size compute in a second; 0.0 while that is not known."""
        seconds = self.seconds_of(max_tokens) if self.is_known else 0.0
        return max_tokens / seconds if seconds > 0 else 0.0

    def _solve(self) -> None:
        """Minimise by one coefficient after the other until none changes the prediction by more than `SETTLED`."""
        if self._is_solved:
            return
        solution = self._solution
        for _ in range(MOST_SWEEPS):
            largest = 0.0
            for at, row in enumerate(self._products):
                if row[at] <= 0.0:
                    continue
                change = max((self._targets[at] - _dot(row, solution)) / row[at], -solution[at])
                solution[at] += change
                largest = max(largest, abs(change) * self._targets[at])
            if largest <= SETTLED * self._weight():
                break
        self._is_solved = True

    def _weight(self) -> float:
        """The weights of all batches together, if each took what the solution says."""
        return max(_dot(self._targets, self._solution), 1e-12)


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    # Spelled out: a worker with light load asks this for each job, and a generator takes three times as long.
    return left[0] * right[0] + left[1] * right[1] + left[2] * right[2] + left[3] * right[3]
