"""The hopper between preparing and running: the pure batch former, made safe for threads and able to wait."""

from __future__ import annotations

from threading import Condition
from typing import TYPE_CHECKING, Final

from cordwood_worker.departures import Departures

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from cordwood_worker.batch import Batch, Row
    from cordwood_worker.collect import Collector
    from cordwood_worker.cost_model import CostModel

LONGEST_WAIT_S: Final = 0.5
AGE_FAVOURED: Final = 8
"""Rows are bypassed so many times less often at most while jobs wait for their tenants' turns."""


def always() -> bool:
    """Whether a device is idle that takes its next batch itself: it is."""
    return True


class Hopper:
    """Rows go in as they are prepared; batches come out when `Departures` says so.

    `changed` is notified of all that comes; hoppers whose batches run on one device share it.
    """

    def __init__(
        self,
        collector: Collector,
        clock: Callable[[], float],
        costs: CostModel | None = None,
        changed: Condition | None = None,
    ) -> None:
        self._collector = collector
        self._departures = Departures(collector, costs)
        self._max_bypass = collector.limits.max_bypass
        self._clock = clock
        self._changed = Condition() if changed is None else changed
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
            self._departures.add(rows, len({row.job_id for row in rows}), self._clock())
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
            batch = self.take_now(idle)
            if batch is None and not self._closed:
                self._changed.wait(self.wait_s(idle))
                batch = self.take_now(idle)
            return batch

    def take_now(self, idle: Callable[[], bool]) -> Batch | None:
        """Return the next batch if one is due; None once closed."""
        with self._changed:
            return None if self._closed else self._departures.take(self._clock(), idle=idle())

    def wait_s(self, idle: Callable[[], bool]) -> float:
        """How long nothing changes by the passing of time alone, at most `LONGEST_WAIT_S`."""
        with self._changed:
            wait_s = None if self._closed else self._departures.wait_s(self._clock(), idle=idle())
            return LONGEST_WAIT_S if wait_s is None else min(wait_s, LONGEST_WAIT_S)
