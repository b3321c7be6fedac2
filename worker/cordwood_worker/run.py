"""Running: take a batch, compute it, pass on what came out."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf
from queue import Empty, Full
from typing import TYPE_CHECKING, Final

from cordwood.errors import CordwoodError
from cordwood_worker.backends import CountingBackend, DeviceBroken
from cordwood_worker.batch import RowFailure
from cordwood_worker.budget import LearnedBudget
from cordwood_worker.execute import Outputs, RowOutcome, execute, let_go
from cordwood_worker.flow import Computed

if TYPE_CHECKING:
    from queue import Queue

    from cordwood_worker.backends import Backend, OverlappingBackend
    from cordwood_worker.batch import Batch
    from cordwood_worker.broker.attempts import Attempts
    from cordwood_worker.flow import Flow, Signals
    from cordwood_worker.stage import Staged

PUT_TIMEOUT_S: Final = 0.5
STAGED_TIMEOUT_S: Final = 0.2

log = logging.getLogger(__name__)


class Runner:
    """Keeps the device busy. It alone calls the backend's `run`."""

    def __init__(
        self, attempts: Attempts, backend: Backend, flow: Flow, signals: Signals, clock: Callable[[], float]
    ) -> None:
        self._marks = Marks(attempts)
        self._device = Device(backend, flow)
        self._hopper = flow.hopper
        self._way_out = WayOut(flow, signals)
        self._clock = clock
        self._pace = flow.pace
        self._ended_s = inf

    def run_once(self) -> None:
        """Run the next batch, waiting for one a bounded time. DeviceBroken is let through: it ends the process."""
        after_s = max(0.0, self._clock() - self._ended_s)
        batch = self._hopper.take()
        if batch is None:
            self._marks.write(())
            self._ended_s = inf
            return
        taken_s = self._clock()
        self._marks.write([batch])
        began_s = self._clock()
        self._pace.gap.note(after_s + began_s - taken_s)
        rows, counts = self._device.run(batch)
        self._ended_s = self._clock()
        self._way_out.pass_on(Computed(batch, rows, self._ended_s - began_s, counts))


@dataclass(frozen=True, slots=True)
class _Begun:
    """A batch that the device was given, and what waits for its outputs."""

    batch: Batch
    outputs: Outputs
    began_s: float


class OverlappingRunner:
    """Keeps a device busy that computes beside the CPU: it is given the next batch before the last one is fetched."""

    def __init__(
        self,
        attempts: Attempts,
        backend: OverlappingBackend,
        flow: Flow,
        staged: Queue[Staged],
        signals: Signals,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._marks = Marks(attempts)
        self._backend = backend
        self._device = Device(backend, flow)
        self._staged = staged
        self._signals = signals
        self._way_out = WayOut(flow, signals)
        self._clock = clock
        self._free_s = 0.0

    def run_once(self) -> None:
        """Run batches as long as they come one upon the other; none is left on the device afterwards."""
        self._signals.device_idle.set()
        begun = self._begin_next(STAGED_TIMEOUT_S, None)
        self._signals.device_idle.clear()
        if begun is None:
            self._marks.write(())
        while begun is not None:
            following = None if self._signals.stop_working.is_set() else self._begin_next(0.0, begun)
            self._fetch(begun)
            begun = following

    def _begin_next(self, timeout_s: float, running: _Begun | None) -> _Begun | None:
        try:
            staged = self._staged.get(timeout=timeout_s) if timeout_s else self._staged.get_nowait()
        except Empty:
            return None
        self._marks.write([staged.batch] if running is None else [running.batch, staged.batch])
        return _Begun(staged.batch, self._begin(staged), self._clock())

    def _begin(self, staged: Staged) -> Outputs:
        """Begin a batch; what that raises is kept for whoever asks for the outputs."""
        try:
            if isinstance(staged.place, Exception):
                raise staged.place
            return self._backend.begin(staged.batch, staged.place)
        except DeviceBroken:
            raise
        except Exception as error:  # noqa: BLE001 - the batch boundary: `execute` finds the row at fault
            let_go(error)
            return _raising(error)

    def _fetch(self, begun: _Begun) -> None:
        rows, counts = self._device.run(begun.batch, begun.outputs)
        ended_s = self._clock()
        compute_s = ended_s - max(begun.began_s, self._free_s)
        self._free_s = ended_s
        self._way_out.pass_on(Computed(begun.batch, rows, compute_s, counts))


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


def _raising(error: Exception) -> Outputs:
    def raise_it() -> object:
        raise error

    return raise_it
