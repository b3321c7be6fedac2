"""A batch while it is put together: its limits, what it costs, and which of two rows it had better take. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final

from cordwood_worker.batch import Row

Cost = Callable[[int, int, int], int]
"""What a batch costs of `max_tokens`, by its number of rows, its longest row and the sum of its rows' lengths.

It must not sink as rows are added.
"""

LONGER_ROWS_BIAS: Final = 0.25
"""How the padding that a longer row causes is weighed against that of a shorter one.

A longer row fills the batch with more work for the padding it causes. On log-normal lengths (mean 60, at most 256) at a
budget of 2,048 tokens 0.25 wastes 9.2 % at 8 batches of lookahead and 3.2 % at 32, and 1.0 wastes 11.2 % and 3.3 %.
Measured with `python -m tests.docs.figures padding`.
"""


SMALL_PADDING: Final = 0.25
"""Padding of this part of a row is always accepted: what a batch costs besides is known only roughly."""


def padded_cost(rows: int, longest: int, tokens: int) -> int:
    """The cells of a padded matrix: rows times longest."""
    del tokens
    return rows * longest


def packed_cost(rows: int, longest: int, tokens: int) -> int:
    """The tokens themselves, for a backend that runs rows without padding."""
    del rows, longest
    return tokens


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What a batch may be, and how long and how often a row may be kept waiting.

    `max_tokens` bounds the batch's cost, `max_rows` its rows; a row that is over the first alone runs alone. A batch
    leaves at the latest when its oldest row has waited `max_wait_s`. No row is left behind by more than `max_bypass`
    batches with a younger row of its lane in them. Left alone, rows are bypassed up to three times as often as there
    are batches of lookahead: four times the lookahead costs nothing, less costs padding.
    """

    max_tokens: int
    max_rows: int
    max_wait_s: float
    max_bypass: int = 128

    def __post_init__(self) -> None:
        if min(self.max_tokens, self.max_rows, self.max_bypass) < 1 or not self.max_wait_s >= 0:
            raise ValueError(f"limits of a batch must be 1 or more, and the wait not negative: {self}")


class Draft:
    """The rows chosen so far, and what still fits.

    `worth` is the padding, in tokens, that it is worth to have one batch less.
    """

    def __init__(self, limits: BatchLimits, cost: Cost, worth: float = inf) -> None:
        self.rows: list[Row] = []
        self.longest = 0
        self.tokens = 0
        self._spent = 0
        self._limits = limits
        self._cost = cost
        self._worth = worth

    def add(self, row: Row) -> None:
        """Put a row in; the first one goes in whatever its length."""
        length = row.length
        self._spent = self._cost_with(length)
        self.tokens += length
        self.rows.append(row)
        self.longest = max(self.longest, length)

    def has_room(self, length: int) -> bool:
        """Whether a row of this length fits."""
        return len(self.rows) < self._limits.max_rows and self._cost_with(length) <= self._limits.max_tokens

    def choose(self, shorter: int | None, longer: int | None) -> int | None:
        """Return which of two lengths to add: of those that fit the one that causes less padding, None if none fits."""
        if shorter is not None and not (self.has_room(shorter) and self._pays(shorter)):
            shorter = None
        if shorter == self.longest or longer is None or not (self.has_room(longer) and self._pays(longer)):
            return shorter
        if shorter is None or self._padding_by(longer) * LONGER_ROWS_BIAS < self._padding_by(shorter):
            return longer
        return shorter

    def _pays(self, length: int) -> bool:
        """Whether a row's padding costs no more than a batch of its own would, or is small beside the row itself."""
        return self._worth == inf or self._padding_by(length) <= self._worth + SMALL_PADDING * length

    def _padding_by(self, length: int) -> int:
        return self._cost_with(length) - self._spent - length

    def _cost_with(self, length: int) -> int:
        return self._cost(len(self.rows) + 1, max(self.longest, length), self.tokens + length)
