"""What any worker does for the whole queue: takes over from the dead, makes ready what is due, repairs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from cordwood.errors import CordwoodError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cordwood_worker.broker.upkeep import Upkeep
    from cordwood_worker.entry import Entry
    from cordwood_worker.flow import Signals
    from cordwood_worker.held import Held

ROUND_S: Final = 0.25
RECLAIM_EVERY: Final = 2
EXPIRE_EVERY: Final = 4
REAP_EVERY: Final = 40
MAX_RECLAIMED: Final = 256

log = logging.getLogger(__name__)


class Janitor:
    """Goes round every quarter of a second; each duty has its own number of rounds."""

    def __init__(self, upkeep: Upkeep, held: Held, pass_on: Callable[[list[Entry]], None], signals: Signals) -> None:
        self._upkeep = upkeep
        self._held = held
        self._pass_on = pass_on
        self._signals = signals
        self._round = 0

    def run_once(self) -> None:
        """Make one round, then wait for the next."""
        self._round += 1
        self._upkeep.promote()
        if self._round % RECLAIM_EVERY == 0:
            self.reclaim()
        if self._round % EXPIRE_EVERY == 0:
            self._upkeep.expire()
        if self._round % REAP_EVERY == 0:
            self._upkeep.reap()
        if self._signals.repair_wanted.is_set():
            self._repair_as_wanted()
        self._signals.stop_fetching.wait(ROUND_S)

    def _repair_as_wanted(self) -> None:
        """Repair; a wish that comes meanwhile, or that an outage kept from being granted, stays."""
        self._signals.repair_wanted.clear()
        try:
            self.repair()
        except CordwoodError:
            self._signals.repair_wanted.set()
            raise

    def reclaim(self) -> None:
        """Take over from dead workers what there is room for."""
        room = min(MAX_RECLAIMED, self._held.room())
        if room <= 0 or self._signals.paused.is_set() or self._signals.stop_fetching.is_set():
            return
        taken = self._upkeep.reclaim(room)
        if taken.deleted:
            log.error("entries deleted by hand while they were pending: %s", ", ".join(taken.deleted))
            self._signals.repair_wanted.set()
        if taken.entries:
            log.warning("took over %d entries of workers that show no sign of life", len(taken.entries))
            self._pass_on(list(taken.entries))

    def repair(self) -> None:
        """Give records without their place a new one, and say again what serves the queue: a flush takes both."""
        self._upkeep.announce_again()
        found = self._upkeep.repair()
        mended = [job_id for job_id, what in found.items() if what != "bad"]
        bad = len(found) - len(mended)
        if mended:
            log.warning("repaired %d jobs whose entries were gone", len(mended))
        if bad:
            log.error("%d keys under the records' names are no records", bad)
