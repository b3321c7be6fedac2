"""The hopper between preparing and running: the pure batch former, made safe for threads and able to wait."""

from __future__ import annotations

from math import inf
from threading import Condition
from typing import TYPE_CHECKING, Final

from cordwood_worker.patience import Patience

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from cordwood_worker.batch import Batch, Row
    from cordwood_worker.collect import Collector
    from cordwood_worker.cost_model import CostModel

LONGEST_WAIT_S: Final = 0.5
AGE_FAVOURED: Final = 8
"""Rows are bypassed so many times less often at most while jobs wait for their tenants' turns."""
CAUTION: Final = 1.5
"""A batch with a deadline is begun so many times its predicted duration before it."""


def always() -> bool:
    """Whether a device is idle that takes its next batch itself: it is."""
    return True


class Hopper:
    """Rows go in as they are prepared; batches come out when the former says so, or for a device that is idle.

    With `costs` an idle device waits for more rows only where that saves time, and for no deadline too long.
    """

    def __init__(self, collector: Collector, clock: Callable[[], float], costs: CostModel | None = None) -> None:
        self._collector = collector
        self._costs = costs
        self._max_bypass = collector.limits.max_bypass
        self._patience = Patience(collector.limits.max_wait_s)
        self._clock = clock
        self._changed = Condition()
        self._closed = False

    @property
    def max_tokens(self) -> int:
        """The most that a batch may cost now."""
        return self._collector.limits.max_tokens

    def limit_tokens(self, max_tokens: int) -> None:
        """Have later batches cost no more than this."""
        with self._changed:
            self._collector.limit_tokens(max_tokens)
            self._changed.notify_all()

    def favour_age(self, favoured: bool) -> None:  # noqa: FBT001 - on or off is all that it says
        """Have the order of arrival count for more than equal lengths, or no longer."""
        max_bypass = max(1, self._max_bypass // AGE_FAVOURED) if favoured else self._max_bypass
        with self._changed:
            if self._collector.limits.max_bypass != max_bypass:
                self._collector.limit_bypass(max_bypass)

    def put(self, rows: Sequence[Row]) -> None:
        """Add rows."""
        with self._changed:
            self._patience.note(len({row.job_id for row in rows}), self._clock())
            self._collector.add(rows)
            self._changed.notify_all()

    def discard(self, job_ids: Collection[str]) -> None:
        """Forget the rows of jobs that are over already."""
        with self._changed:
            self._collector.discard(job_ids)

    def close(self) -> None:
        """Give out nothing more: the rows that are left are handed back with their jobs."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def take(self, *, idle: Callable[[], bool] = always) -> Batch | None:
        """Return the next batch, waiting until one is due; None once closed, or after `LONGEST_WAIT_S`.

        For a device that is idle any row is due at once, unless others are to be expected within `max_wait_s`.
        """
        with self._changed:
            if self._closed:
                return None
            batch = self._next(idle)
            if batch is not None:
                return batch
            self._changed.wait(self._wait_s(idle))
            return None if self._is_closed() else self._next(idle)

    def _next(self, idle: Callable[[], bool]) -> Batch | None:
        now_s = self._clock()
        return self._collector.take(now_s, flush=idle() and not self._is_worth_waiting(now_s))

    def _wait_s(self, idle: Callable[[], bool]) -> float:
        """How long nothing changes by the passing of time alone, at most `LONGEST_WAIT_S`."""
        now_s = self._clock()
        due_in_s = self._collector.due_in_s(now_s)
        if due_in_s is None:
            return LONGEST_WAIT_S
        begin_in_s = self._begin_by_s() - now_s if idle() else inf
        return max(0.0, min(due_in_s, begin_in_s, LONGEST_WAIT_S))

    def _is_worth_waiting(self, now_s: float) -> bool:
        known = self._costs is not None and self._costs.is_known
        saved_s = self._costs.coefficients.batch_s if self._costs is not None and known else inf
        return self._patience.pays(now_s, saved_s) and now_s < self._begin_by_s()

    def _begin_by_s(self) -> float:
        """When the next batch must begin for the earliest deadline to be kept; inf if there is none."""
        deadline_s = self._collector.deadline_s
        if deadline_s == inf or self._costs is None:
            return deadline_s
        tokens = min(self._collector.tokens, self._collector.limits.max_tokens)
        return deadline_s - CAUTION * self._costs.seconds_of(tokens)

    def _is_closed(self) -> bool:
        """Whether it was closed, asked again after a wait, in which another thread may have done so."""
        return self._closed
