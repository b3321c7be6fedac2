"""Finishing: put rows together into results and store them, in one step with letting go of the job."""

from __future__ import annotations

import logging
from collections import Counter
from queue import Empty
from typing import TYPE_CHECKING, Final

from cordwood_worker.backoff import full_jitter_ms

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from cordwood_worker.assembly import Assembled
    from cordwood_worker.broker.attempts import Attempts
    from cordwood_worker.broker.counters import Counters
    from cordwood_worker.flow import Flow

OUTBOX_TIMEOUT_S: Final = 0.2

log = logging.getLogger(__name__)


class Finisher:
    """Stores outcomes. What it could not store yet it keeps and tries again: nothing is acknowledged before."""

    def __init__(
        self, attempts: Attempts, counters: Counters, flow: Flow, random: Random, clock: Callable[[], float]
    ) -> None:
        self._attempts = attempts
        self._counters = counters
        self._held = flow.held
        self._assembly = flow.assembly
        self._hopper = flow.hopper
        self._outbox = flow.outbox
        self._cost = flow.cost
        self._random = random
        self._pace = flow.pace
        self._clock = clock
        self._began_s = 0.0
        self._unstored: Assembled | None = None

    @property
    def is_idle(self) -> bool:
        """Whether all that was computed is stored."""
        return self._outbox.unfinished_tasks == 0

    def run_once(self) -> None:
        """Store the outcomes of the next batch, waiting for one up to `OUTBOX_TIMEOUT_S`."""
        if self._unstored is None:
            try:
                computed = self._outbox.get(timeout=OUTBOX_TIMEOUT_S)
            except Empty:
                return
            self._unstored = self._assembly.add(computed.rows)
            batch = computed.batch
            cells = self._cost(len(batch.rows), batch.longest, batch.real_tokens)
            self._counters.add_batch(batch, cells, computed.compute_s)
            self._counters.add(computed.counts)
            self._began_s = self._clock()
        self._store(self._unstored)
        self._held.remove(attempt.entry for attempt in self._unstored.attempts)
        self._unstored = None
        self._pace.store.note(self._clock() - self._began_s)
        self._outbox.task_done()
        self._counters.flush()

    def _store(self, ended: Assembled) -> None:
        answers: list[str] = []
        if ended.done:
            answers += self._attempts.finish(ended.done)
        if ended.failed:
            # Rows of a failed job that wait for a batch would be computed for nothing.
            self._hopper.discard({fault.attempt.job_id for fault in ended.failed})
            answers += self._attempts.fail(ended.failed)
        for fault in ended.retried:
            delay_ms = full_jitter_ms(fault.attempt.number, self._random)
            self._hopper.discard({fault.attempt.job_id})
            answers += self._attempts.retry([fault], delay_ms)
        unusual = Counter(answer for answer in answers if answer not in {"done", "failed", "delayed"})
        if unusual:
            log.info("outcomes that changed nothing or gave up: %s", dict(unusual))
