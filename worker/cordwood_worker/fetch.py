"""Fetching: entries from the lanes into the worker, never more than it has room for."""

from __future__ import annotations

import logging
from queue import Full
from typing import TYPE_CHECKING, Final

from cordwood.errors import CordwoodError
from cordwood.keys import ALL_LANES
from cordwood_worker.allowance import allow, fair_room
from cordwood_worker.broker.lanes import GroupMissing, LaneReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from cordwood_worker.entry import Entry
    from cordwood_worker.flow import Flow, Signals
    from cordwood_worker.held import Load
    from cordwood_worker.lanes import LanePolicy

MAX_PER_READ: Final = 512
BLOCK_MS: Final = 1000
FULL_POLL_S: Final = 0.02
"""How often a worker that may hold no more looks for jobs of a lane that it has not its share of."""
PUT_TIMEOUT_S: Final = 0.5
WINDOW_PART: Final = 0.75
"""While tenants' jobs wait for their turn, so much of what all workers may hold is in a lane.

With a lookahead of 4 batches and rows bypassed twice at most, ten jobs of a tenant that comes are done within 5
batches, whatever their lengths; with all 4 batches let in, or rows bypassed as often as else, sometimes they are not.
"""

log = logging.getLogger(__name__)


class Fetcher:
    """Reads entries and passes them on to be prepared.

    Of a backlog that is shared by `workers()`, this one takes its part and no more.
    """

    def __init__(
        self, reader: LaneReader, flow: Flow, signals: Signals, policy: LanePolicy, workers: Callable[[], int]
    ) -> None:
        self._reader = reader
        self._policy = policy
        self._workers = workers
        self._held = flow.held
        self._inbox = flow.inbox
        self._hopper = flow.hopper
        self._signals = signals
        self._pumped_at = -1
        self.idle_reads = 0
        """Reads in a row that found nothing, or were not made as the queue is paused, for `--burst`."""

    def run_once(self) -> None:
        """Read what there is room for, waiting for entries or for room up to `BLOCK_MS`."""
        if self._signals.paused.is_set():
            self._signals.stop_fetching.wait(BLOCK_MS / 1000)
            self.idle_reads += 1
            return
        try:
            self.pass_on(self._read())
        except GroupMissing:
            log.warning("the lanes or their groups are gone: creating them again")
            self._signals.repair_wanted.set()
            self._reader.create_groups()

    def _read(self) -> list[Entry]:
        """Read what may be fetched; if that is nothing wait for entries, or for room where there is none."""
        load, workers = self._held.load(), self._workers()
        room = min(load.room, MAX_PER_READ)
        if self._reader.tenants_wait:
            self._pump(load, workers)
        if workers > 1 and room > 0:
            room = min(room, fair_room(self._reader.depth(), workers, load.total))
        entries = self._reader.read(allow(self._policy, load.lanes, room, load.capacity))
        self._hopper.favour_age(self._reader.tenants_wait)
        if not entries and room > 0 and not self._reader.tenants_wait:
            # Of several workers that wait, each is given one; what else there is they divide.
            entries = self._reader.wait(1 if workers > 1 else max(1, room // len(ALL_LANES)), BLOCK_MS)
            self.idle_reads += 1
        if entries:
            self.idle_reads = 0
        elif room == 0 or self._reader.tenants_wait:
            self._held.wait_for_release(load, FULL_POLL_S)
        return entries

    def _pump(self, load: Load, workers: int) -> None:
        """Let tenants' jobs in, where something has left since the last time; a failure keeps nobody from reading."""
        if load.total and load.releases == self._pumped_at:
            return
        self._pumped_at = load.releases
        try:
            self._reader.pump(max(1, int(WINDOW_PART * workers * load.capacity)), idle=load.total == 0)
        except CordwoodError as error:
            log.warning("tenants' jobs stay aside: %s", error)

    def pass_on(self, entries: list[Entry]) -> None:
        """Hand entries to the next stage, each once, whoever delivered them."""
        new = self._held.add(entries)
        while new:
            try:
                self._inbox.put(new, timeout=PUT_TIMEOUT_S)
            except Full:
                if self._signals.stop_fetching.is_set():
                    # What is held and not prepared is handed back by the shutdown.
                    return
            else:
                return
