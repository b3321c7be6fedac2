"""When a batch leaves for its device: what the batch former says, and whether an idle device had better wait. Pure."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from cordwood_worker.patience import Patience

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cordwood_worker.batch import Batch, Row
    from cordwood_worker.collect import Collector
    from cordwood_worker.cost_model import CostModel

CAUTION: Final = 1.5
"""A batch with a deadline is begun so many times its predicted duration before it."""


class Departures:
    """A batch former, the arrivals of late and what batches cost.

    With `costs` an idle device waits for more rows only where that saves time, no longer than a job saves by joining a
    batch, and for no deadline too long.
    """

    def __init__(self, collector: Collector, costs: CostModel | None = None) -> None:
        self._collector = collector
        self._costs = costs
        self._patience = Patience(collector.limits.max_wait_s)

    def add(self, rows: Sequence[Row], jobs: int, now_s: float) -> None:
        """Buffer rows, of so many jobs, that have come now."""
        self._patience.note(jobs, now_s)
        self._collector.add(rows)

    def take(self, now_s: float, *, idle: bool) -> Batch | None:
        """Remove and return the batch that leaves now, if one does; for an idle device any row is enough for one."""
        worth = inf if self._costs is None else self._costs.batch_in_tokens
        return self._collector.take(now_s, flush=idle and not self._is_worth_waiting(now_s), worth=worth)

    def wait_s(self, now_s: float, *, idle: bool) -> float | None:
        """Return how long nothing changes by the passing of time alone; None if nothing is buffered."""
        due_in_s = self._collector.due_in_s(now_s)
        if due_in_s is None:
            return None
        begin_in_s = min(self._begin_by_s(), self._collector.oldest_s + self._saved_s()) - now_s if idle else inf
        return max(0.0, min(due_in_s, begin_in_s))

    def _is_worth_waiting(self, now_s: float) -> bool:
        saved_s = self._saved_s()
        if now_s >= self._collector.oldest_s + saved_s:
            return False
        return self._patience.pays(now_s, saved_s) and now_s < self._begin_by_s()

    def _saved_s(self) -> float:
        """What a job saves by joining a batch, and the longest that waiting for one may take; inf while unknown."""
        known = self._costs is not None and self._costs.is_known
        return self._costs.coefficients.batch_s if self._costs is not None and known else inf

    def _begin_by_s(self) -> float:
        """When the next batch must begin for the earliest deadline to be kept; inf if there is none."""
        deadline_s = self._collector.deadline_s
        if deadline_s == inf or self._costs is None:
            return deadline_s
        tokens = min(self._collector.tokens, self._collector.limits.max_tokens)
        return deadline_s - CAUTION * self._costs.seconds_of(tokens)
