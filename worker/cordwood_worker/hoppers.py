"""The hoppers of all queues that share a device: whose batch is next."""

from __future__ import annotations

from threading import Condition
from typing import TYPE_CHECKING

from cordwood_worker.fair_turns import FairTurns
from cordwood_worker.hopper import always

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cordwood_worker.batch import Batch
    from cordwood_worker.served import Served


class Hoppers:
    """Gives out batches of several queues, each its weight's part of the device's time while all have work.

    Invariant 6 is kept here among queues. `changed` is what the hoppers of all of them notify.
    """

    def __init__(self, served: Sequence[Served], changed: Condition) -> None:
        self._served = {each.queue: each for each in served}
        self._turns = FairTurns({each.queue: each.weight for each in served})
        self._changed = changed

    def take(self, *, idle: Callable[[], bool] = always) -> tuple[Served, Batch] | None:
        """Return the next batch and whose it is, waiting for one a bounded time as a hopper does."""
        with self._changed:
            found = self._next(idle)
            if found is None:
                self._changed.wait(min(served.hopper.wait_s(idle) for served in self._served.values()))
                found = self._next(idle)
            return found

    def charge(self, served: Served, seconds: float) -> None:
        """Note that a batch of this queue has had the device for so long."""
        self._turns.charge(served.queue, seconds)

    def clear_marks(self) -> None:
        """Say of all queues that nothing of them is on the device."""
        for served in self._served.values():
            served.marks.write(())

    def _next(self, idle: Callable[[], bool]) -> tuple[Served, Batch] | None:
        for queue in self._turns.order(self._served):
            served = self._served[queue]
            batch = served.hopper.take_now(idle)
            if batch is not None:
                return served, batch
        return None
