"""Staging: lay out the next batch on a device that computes beside the CPU, while another one runs."""

from __future__ import annotations

from dataclasses import dataclass
from queue import Full, Queue
from typing import TYPE_CHECKING, Final, cast

from cordwood_worker.backends import DeviceBroken
from cordwood_worker.execute import let_go

if TYPE_CHECKING:
    from cordwood_worker.backends import OverlappingBackend, Staging
    from cordwood_worker.batch import Batch
    from cordwood_worker.flow import Signals
    from cordwood_worker.hoppers import Hoppers
    from cordwood_worker.served import Served

PUT_TIMEOUT_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Staged:
    """A batch and its place on the device, or why it could not be laid out."""

    served: Served
    batch: Batch
    place: Staging | Exception


class Stager:
    """Takes batches from the hoppers and lays them out, one ahead of the device: what comes later joins a later one."""

    def __init__(self, hoppers: Hoppers, staged: Queue[Staged], signals: Signals) -> None:
        self._hoppers = hoppers
        self._staged = staged
        self._signals = signals

    def run_once(self) -> None:
        """Lay out the next batch, waiting for one a bounded time, and for room as long as the worker works."""
        found = self._hoppers.take(idle=self._signals.device_idle.is_set)
        if found is None:
            return
        served, batch = found
        staged = Staged(served, batch, self._lay_out(served, batch))
        while not self._signals.stop_working.is_set():
            try:
                self._staged.put(staged, timeout=PUT_TIMEOUT_S)
            except Full:
                continue
            return
        release(staged)

    def _lay_out(self, served: Served, batch: Batch) -> Staging | Exception:
        try:
            return cast("OverlappingBackend", served.backend).stage(batch)
        except DeviceBroken:
            raise
        except Exception as error:  # noqa: BLE001 - the batch boundary: whoever runs it finds the row at fault
            let_go(error)
            return error


def release(staged: Staged) -> None:
    """Give up the place of a batch that is not begun."""
    if not isinstance(staged.place, Exception):
        staged.place.release()
