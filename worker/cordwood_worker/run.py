"""Running: take a batch, compute it, pass on what came out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from queue import Empty
from typing import TYPE_CHECKING, Final, cast

from cordwood_worker.backends import DeviceBroken, OverlappingBackend
from cordwood_worker.execute import Outputs, let_go
from cordwood_worker.flow import Computed

if TYPE_CHECKING:
    from queue import Queue

    from cordwood_worker.batch import Batch
    from cordwood_worker.flow import Signals
    from cordwood_worker.hoppers import Hoppers
    from cordwood_worker.served import Served
    from cordwood_worker.stage import Staged

STAGED_TIMEOUT_S: Final = 0.2


class Runner:
    """Keeps the device busy with the batches of all queues that it serves. It alone calls a backend's `run`."""

    def __init__(self, hoppers: Hoppers, clock: Callable[[], float]) -> None:
        self._hoppers = hoppers
        self._clock = clock
        self._ended_s = inf

    def run_once(self) -> None:
        """Run the next batch, waiting for one a bounded time. DeviceBroken is let through: it ends the process."""
        after_s = max(0.0, self._clock() - self._ended_s)
        found = self._hoppers.take()
        if found is None:
            self._hoppers.clear_marks()
            self._ended_s = inf
            return
        served, batch = found
        taken_s = self._clock()
        served.marks.write([batch])
        began_s = self._clock()
        served.pace.gap.note(after_s + began_s - taken_s)
        rows, counts = served.device.run(batch)
        self._ended_s = self._clock()
        compute_s = self._ended_s - began_s
        self._hoppers.charge(served, compute_s)
        served.way_out.pass_on(Computed(batch, rows, compute_s, counts))


@dataclass(frozen=True, slots=True)
class _Begun:
    """A batch that the device was given, and what waits for its outputs."""

    served: Served
    batch: Batch
    outputs: Outputs
    began_s: float


class OverlappingRunner:
    """Keeps a device busy that computes beside the CPU: it is given the next batch before the last one is fetched."""

    def __init__(
        self, hoppers: Hoppers, staged: Queue[Staged], signals: Signals, *, clock: Callable[[], float]
    ) -> None:
        self._hoppers = hoppers
        self._staged = staged
        self._signals = signals
        self._clock = clock
        self._free_s = 0.0

    def run_once(self) -> None:
        """Run batches as long as they come one upon the other; none is left on the device afterwards."""
        self._signals.device_idle.set()
        begun = self._begin_next(STAGED_TIMEOUT_S, None)
        self._signals.device_idle.clear()
        if begun is None:
            self._hoppers.clear_marks()
        while begun is not None:
            following = None if self._signals.stop_working.is_set() else self._begin_next(0.0, begun)
            self._fetch(begun)
            begun = following

    def _begin_next(self, timeout_s: float, running: _Begun | None) -> _Begun | None:
        try:
            staged = self._staged.get(timeout=timeout_s) if timeout_s else self._staged.get_nowait()
        except Empty:
            return None
        served = staged.served
        also = [running.batch] if running is not None and running.served is served else []
        served.marks.write([*also, staged.batch])
        return _Begun(served, staged.batch, self._begin(staged), self._clock())

    def _begin(self, staged: Staged) -> Outputs:
        """Begin a batch; what that raises is kept for whoever asks for the outputs."""
        try:
            if isinstance(staged.place, Exception):
                raise staged.place
            return cast("OverlappingBackend", staged.served.backend).begin(staged.batch, staged.place)
        except DeviceBroken:
            raise
        except Exception as error:  # noqa: BLE001 - the batch boundary: `execute` finds the row at fault
            let_go(error)
            return _raising(error)

    def _fetch(self, begun: _Begun) -> None:
        rows, counts = begun.served.device.run(begun.batch, begun.outputs)
        ended_s = self._clock()
        compute_s = ended_s - max(begun.began_s, self._free_s)
        self._free_s = ended_s
        self._hoppers.charge(begun.served, compute_s)
        begun.served.way_out.pass_on(Computed(begun.batch, rows, compute_s, counts))


def _raising(error: Exception) -> Outputs:
    def raise_it() -> object:
        raise error

    return raise_it
