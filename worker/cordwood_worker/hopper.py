"""The hopper between preparing and running: the pure batch former, made safe for threads and able to wait."""

from __future__ import annotations

from threading import Condition
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from cordwood_worker.batch import Batch, Row
    from cordwood_worker.collect import Collector

LONGEST_WAIT_S: Final = 0.5


class Hopper:
    """Rows go in as they are prepared; batches come out when the former says that one is due."""

    def __init__(self, collector: Collector, clock: Callable[[], float]) -> None:
        self._collector = collector
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

    def put(self, rows: Sequence[Row]) -> None:
        """Add rows."""
        with self._changed:
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

    def take(self) -> Batch | None:
        """Return the next batch, waiting until one is due; None once closed, or after `LONGEST_WAIT_S`."""
        with self._changed:
            if self._closed:
                return None
            batch = self._collector.take(self._clock())
            if batch is not None:
                return batch
            due_in_s = self._collector.due_in_s(self._clock())
            self._changed.wait(LONGEST_WAIT_S if due_in_s is None else min(due_in_s, LONGEST_WAIT_S))
            return None if self._is_closed() else self._collector.take(self._clock())

    def _is_closed(self) -> bool:
        """Whether it was closed, asked again after a wait, in which another thread may have done so."""
        return self._closed
