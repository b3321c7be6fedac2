"""Fetching: entries from the lanes into the worker, never more than it has room for."""

from __future__ import annotations

import logging
from queue import Full
from typing import TYPE_CHECKING, Final

from cordwood_worker.broker.lanes import GroupMissing, LaneReader

if TYPE_CHECKING:
    from cordwood_worker.entry import Entry
    from cordwood_worker.flow import Flow, Signals

MAX_PER_READ: Final = 512
BLOCK_MS: Final = 1000
PUT_TIMEOUT_S: Final = 0.5

log = logging.getLogger(__name__)


class Fetcher:
    """Reads entries and passes them on to be prepared."""

    def __init__(self, reader: LaneReader, flow: Flow, signals: Signals) -> None:
        self._reader = reader
        self._held = flow.held
        self._inbox = flow.inbox
        self._signals = signals
        self.idle_reads = 0
        """Reads in a row that found nothing, for `--burst`."""

    def run_once(self) -> None:
        """Read what there is room for, waiting for entries or for room up to `BLOCK_MS`."""
        if self._signals.paused.is_set():
            self._signals.stop_fetching.wait(BLOCK_MS / 1000)
            return
        if not self._held.wait_for_room(BLOCK_MS / 1000):
            return
        try:
            entries = self._reader.read(min(self._held.room(), MAX_PER_READ), BLOCK_MS)
        except GroupMissing:
            log.warning("the lanes or their groups are gone: creating them again")
            self._signals.repair_wanted.set()
            self._reader.create_groups()
            return
        self.idle_reads = 0 if entries else self.idle_reads + 1
        self.pass_on(entries)

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
