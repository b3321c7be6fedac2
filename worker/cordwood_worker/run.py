"""Running: take a batch, compute it, pass on what came out."""

from __future__ import annotations

import logging
from queue import Full
from typing import TYPE_CHECKING, Final

from cordwood.errors import CordwoodError
from cordwood_worker.execute import execute
from cordwood_worker.flow import Computed

if TYPE_CHECKING:
    from collections.abc import Callable

    from cordwood_worker.backends import Backend
    from cordwood_worker.broker.attempts import Attempts
    from cordwood_worker.flow import Flow, Signals

PUT_TIMEOUT_S: Final = 0.5

log = logging.getLogger(__name__)


class Runner:
    """Keeps the device busy. It alone calls the backend's `run`."""

    def __init__(
        self, attempts: Attempts, backend: Backend, flow: Flow, signals: Signals, clock: Callable[[], float]
    ) -> None:
        self._attempts = attempts
        self._backend = backend
        self._hopper = flow.hopper
        self._outbox = flow.outbox
        self._signals = signals
        self._clock = clock
        self._marked = False

    def run_once(self) -> None:
        """Run the next batch, waiting for one a bounded time. DeviceBroken is let through: it ends the process."""
        batch = self._hopper.take()
        if batch is None:
            self._mark(())
            return
        self._mark({row.job_id: None for row in batch.rows})
        began_s = self._clock()
        rows = execute(self._backend, batch)
        self._pass_on(Computed(batch, rows, self._clock() - began_s))

    def _mark(self, job_ids: dict[str, None] | tuple[()]) -> None:
        """Say what is about to run. A server that does not answer must not keep the device from finishing its work."""
        if not job_ids and not self._marked:
            return
        try:
            self._attempts.mark("run", job_ids)
            self._marked = bool(job_ids)
        except CordwoodError as error:
            log.warning("a batch runs unmarked: %s", error)

    def _pass_on(self, computed: Computed) -> None:
        while not self._signals.stop_all.is_set():
            try:
                self._outbox.put(computed, timeout=PUT_TIMEOUT_S)
            except Full:
                continue
            return
