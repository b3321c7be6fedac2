"""What running the batches of one queue takes: its hopper, its backend, its marks, and the way to its finisher."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from queue import Full
from typing import TYPE_CHECKING, Final, Self

from cordwood.errors import CordwoodError
from cordwood_worker.backends import CountingBackend
from cordwood_worker.batch import RowFailure
from cordwood_worker.budget import LearnedBudget
from cordwood_worker.execute import Outputs, RowOutcome, execute

if TYPE_CHECKING:
    from cordwood_worker.backends import Backend
    from cordwood_worker.batch import Batch
    from cordwood_worker.broker.attempts import Attempts
    from cordwood_worker.flow import Computed, Flow, Signals
    from cordwood_worker.hopper import Hopper
    from cordwood_worker.pace import Pace

PUT_TIMEOUT_S: Final = 0.5

log = logging.getLogger(__name__)


class Device:
    """Runs batches to their ends, has the batch former keep to what fits, and counts what went wrong on the way."""

    def __init__(self, backend: Backend, flow: Flow) -> None:
        self._backend = backend
        self._hopper = flow.hopper
        self._cost = flow.cost
        self._budget = LearnedBudget(flow.hopper.max_tokens)
        self._counts: Counter[str] = Counter()

    def run(self, batch: Batch, begun: Outputs | None = None) -> tuple[list[RowOutcome], Mapping[str, int]]:
        """Return what the rows came to, and what is to be counted beside them."""
        before = self._budget.limit
        rows = execute(self._backend, batch, begun, self._note_run)
        self._budget.note_batch()
        if self._budget.limit != before:
            log.warning("batches may cost up to %d tokens now, before %d", self._budget.limit, before)
            self._hopper.limit_tokens(self._budget.limit)
        if isinstance(self._backend, CountingBackend):
            self._counts.update(self._backend.take_counts())
        counts, self._counts = self._counts, Counter()
        return rows, counts

    def _note_run(self, batch: Batch, fits: bool) -> None:  # noqa: FBT001 - as `execute` calls it
        if not fits:
            self._counts["oom_halvings"] += 1
        cost = self._cost(len(batch.rows), batch.longest, batch.real_tokens)
        self._budget.note_run(cost, fits=fits, alone=len(batch.rows) == 1)


class Marks:
    """Notes on the server of what is about to run, so that the death of this worker makes suspects of these alone."""

    def __init__(self, attempts: Attempts) -> None:
        self._attempts = attempts
        self._any = False

    def write(self, batches: Iterable[Batch]) -> None:
        """Note these batches and no others. A server that does not answer must not keep the device from its work."""
        job_ids = dict.fromkeys(row.job_id for batch in batches for row in batch.rows)
        if not job_ids and not self._any:
            return
        try:
            self._attempts.mark("run", job_ids)
            self._any = bool(job_ids)
        except CordwoodError as error:
            log.warning("a batch runs unmarked: %s", error)


class WayOut:
    """The way from the device to the finisher, which has room for a few batches; here their times are learned."""

    def __init__(self, flow: Flow, signals: Signals) -> None:
        self._outbox = flow.outbox
        self._costs = flow.costs
        self._signals = signals

    def pass_on(self, computed: Computed) -> None:
        """Hand on a batch, waiting for room until the worker ends.

        A batch that went wrong in any way ran more than once, and its time says nothing about others.
        """
        if not computed.counts and not any(isinstance(row, RowFailure) for row in computed.rows):
            self._costs.note(computed.batch, computed.compute_s)
        while not self._signals.stop_all.is_set():
            try:
                self._outbox.put(computed, timeout=PUT_TIMEOUT_S)
            except Full:
                continue
            return


@dataclass(frozen=True, slots=True)
class Served:
    """One of the queues that share a device. `weight` is its part of the device's time, in any unit."""

    queue: str
    weight: float
    backend: Backend
    hopper: Hopper
    marks: Marks
    device: Device
    way_out: WayOut
    pace: Pace

    @classmethod
    def of(cls, queue: str, weight: float, backend: Backend, flow: Flow, attempts: Attempts, signals: Signals) -> Self:
        """Put together what running this queue's batches takes."""
        return cls(
            queue=queue,
            weight=weight,
            backend=backend,
            hopper=flow.hopper,
            marks=Marks(attempts),
            device=Device(backend, flow),
            way_out=WayOut(flow, signals),
            pace=flow.pace,
        )
