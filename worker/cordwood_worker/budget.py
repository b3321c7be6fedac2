"""How much a batch may cost, learned from what did not fit the device's memory. Pure."""

from __future__ import annotations

from typing import Final

BELOW_FAILURE: Final = 7 / 8
"""A batch may cost this share of the smallest that did not fit."""
FIRST_TRIAL_AFTER: Final = 1_000
"""So many batches without a failure, and the budget is raised by an eighth: memory may be short for a while only."""
LAST_TRIAL_AFTER: Final = 64_000
"""Each trial that fails doubles the wait for the next, up to this."""


class LearnedBudget:
    """The most that a batch may cost, in the units of the batch former's cost: `most` until a batch does not fit.

    A failing batch is run again in halves, and each half that fails lowers the limit too, so that one batch teaches
    nearly all there is to learn.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._limit = most
        self._since_change = 0
        self._trial_after = FIRST_TRIAL_AFTER
        self._is_trial = False

    @property
    def limit(self) -> int:
        """What a batch may cost now, at least 1."""
        return self._limit

    def note_failure(self, cost: int) -> None:
        """Learn that a batch of this cost did not fit."""
        if self._is_trial:
            self._trial_after = min(2 * self._trial_after, LAST_TRIAL_AFTER)
            self._is_trial = False
        self._since_change = 0
        self._limit = max(1, min(self._limit, int(cost * BELOW_FAILURE)))

    def note_batch(self) -> None:
        """Count a batch that came to its end; after enough of them without a failure, try a little more."""
        self._since_change += 1
        if self._limit == self._most or self._since_change < self._trial_after:
            return
        self._since_change = 0
        self._is_trial = True
        self._limit = min(self._most, self._limit + max(1, self._limit // 8))
