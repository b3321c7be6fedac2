"""How much a batch may cost, learned from what fits the device's memory and what does not. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

BELOW_FAILURE: Final = 7 / 8
"""A batch may cost this share of the smallest that did not fit."""
FIRST_TRIAL_AFTER: Final = 1_000
"""So many batches without a failure, and the budget is raised by an eighth: memory may be short for a while only."""
LAST_TRIAL_AFTER: Final = 64_000
"""Each trial that fails doubles the wait for the next, up to this."""


@dataclass(slots=True)
class _Runs:
    """The runs of one batch by their costs: the largest that fitted, those that did not, the smallest row of these."""

    fitted: int = 0
    failed: list[int] = field(default_factory=list)
    failed_alone: int = 0

    def smallest_failure(self) -> int:
        """Return the cost of the smallest run that failed for want of memory, as far as one can tell, or 0."""
        is_only_row = len(self.failed) == 1 and self.failed_alone > 0
        if is_only_row or 0 < self.failed_alone <= self.fitted:
            return 0
        return min((cost for cost in self.failed if cost > self.fitted), default=0)


class LearnedBudget:
    """The most that a batch may cost, in the units of the batch former's cost: `most` until a batch does not fit.

    A batch that fails is run again in halves, and its runs are judged together when it is over. The limit sinks to
    seven eighths of the smallest that failed, but not below the largest that is known to fit. What teaches nothing: a
    batch of one row, which no limit makes smaller; a batch with a row that fails alone although others that cost as
    much fitted, which is at fault itself; and the first failure at a cost that fitted earlier, which may be the
    shortage of a moment. A second one, before anything that large has fitted again, is believed, and what was known
    before the first is forgotten.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._limit = most
        self._since_change = 0
        self._trial_after = FIRST_TRIAL_AFTER
        self._is_trial = False
        self._known = 0
        self._doubted = 0
        self._known_since_doubt = 0
        self._runs = _Runs()

    @property
    def limit(self) -> int:
        """What a batch may cost now, at least 1."""
        return self._limit

    def note_run(self, cost: int, *, fits: bool, alone: bool) -> None:
        """Take in that a run of the present batch fitted, or not; `alone` says that it was of one row."""
        runs = self._runs
        if fits:
            runs.fitted = max(runs.fitted, cost)
            return
        runs.failed.append(cost)
        if alone:
            runs.failed_alone = min(runs.failed_alone or cost, cost)

    def note_batch(self) -> None:
        """Learn from the runs since the last call; after enough batches without a failure, try a little more."""
        failed, fitted = self._runs.smallest_failure(), self._runs.fitted
        self._runs = _Runs()
        if failed:
            self._learn(failed, fitted)
        elif fitted >= self._doubted:
            self._doubted = 0
            self._known = max(self._known, fitted)
        else:
            self._known_since_doubt = max(self._known_since_doubt, fitted)
        self._since_change += 1
        if self._limit < self._most and self._since_change >= self._trial_after:
            self._since_change = 0
            self._is_trial = True
            self._limit = min(self._most, self._limit + max(1, self._limit // 8))

    def _learn(self, failed: int, fitted: int) -> None:
        if failed > self._known:
            self._known = max(self._known, fitted)
        elif not self._doubted:
            self._doubted, self._known_since_doubt = failed, fitted
            return
        else:
            failed = min(failed, self._doubted)
            self._known = max(self._known_since_doubt, fitted)
            self._doubted = 0
        if self._is_trial:
            self._trial_after = min(2 * self._trial_after, LAST_TRIAL_AFTER)
            self._is_trial = False
        self._since_change = 0
        self._limit = max(1, min(self._limit, max(self._known, int(failed * BELOW_FAILURE))))
