"""Signs of life, and the renewal of all that the worker holds."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from cordwood import codec
from cordwood_worker.broker.lanes import LaneReader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cordwood_worker.broker.upkeep import Upkeep
    from cordwood_worker.entry import Entry
    from cordwood_worker.flow import Signals
    from cordwood_worker.held import Held

MAX_INFO_BYTES: Final = 16 * 1024
RENEWALS_PER_LEASE: Final = 3

log = logging.getLogger(__name__)


class Heartbeat:
    """Shows the server every `every_s` that this worker lives, and what it is doing."""

    def __init__(
        self, upkeep: Upkeep, info: Callable[[], Mapping[str, object]], every_s: float, signals: Signals
    ) -> None:
        self._upkeep = upkeep
        self._info = info
        self._every_s = every_s
        self._signals = signals
        self._workers = 1

    @property
    def workers(self) -> int:
        """How many workers the queue had at the last beat, this one among them."""
        return self._workers

    def beat(self) -> None:
        """Beat once, now; a worker does so before its first read."""
        answer = self._upkeep.beat(codec.pack(dict(self._info()), max_bytes=MAX_INFO_BYTES))
        self._workers = answer.workers
        if answer.paused:
            self._signals.paused.set()
        else:
            self._signals.paused.clear()

    def run_once(self) -> None:
        """Beat, then wait for the next time."""
        self.beat()
        self._signals.stop_all.wait(self._every_s)


class Renewal:
    """Renews what is held three times a lease, and takes up entries that were delivered in a lost reply."""

    def __init__(
        self,
        upkeep: Upkeep,
        reader: LaneReader,
        held: Held,
        pass_on: Callable[[list[Entry]], None],
        *,
        lease_s: float,
        signals: Signals,
    ) -> None:
        self._upkeep = upkeep
        self._reader = reader
        self._held = held
        self._pass_on = pass_on
        self._every_s = lease_s / RENEWALS_PER_LEASE
        self._signals = signals

    def run_once(self) -> None:
        """Wait for the next time, then renew and compare."""
        if not self._signals.stop_fetching.wait(self._every_s):
            self.renew()

    def renew(self) -> None:
        """Renew all that the server has as pending for this worker, and take up what the worker does not hold."""
        unheld = self._held.compare(self._upkeep.renew())
        if unheld:
            log.warning("taking up %d entries whose delivery was lost", len(unheld))
            self._pass_on(self._reader.fetch(unheld))
