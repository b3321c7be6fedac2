"""What the stages of a worker share: the queues between them, and the signals that end them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from queue import Queue
from threading import Event
from typing import TYPE_CHECKING

from cordwood_worker.cost_model import CostModel, padded_work
from cordwood_worker.draft import Cost, padded_cost
from cordwood_worker.lengths import Lengths
from cordwood_worker.pace import Pace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cordwood_worker.assembly import Assembly
    from cordwood_worker.batch import Batch, RowFailure, RowOutput
    from cordwood_worker.entry import Entry
    from cordwood_worker.held import Held
    from cordwood_worker.hopper import Hopper


@dataclass(frozen=True, slots=True)
class Computed:
    """A batch and what its rows came to, in row order.

    `compute_s` is the device's time for it, `counts` what else is to be counted of it, by its name in the statistics.
    """

    batch: Batch
    rows: list[RowOutput | RowFailure]
    compute_s: float
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Flow:
    """The way of a job through a worker; every queue on it is bounded.

    `cost` is what a batch costs of its budget, `costs` what batches cost in time, `lengths` how long jobs are,
    `pace` what the worker's other work takes.
    """

    held: Held
    hopper: Hopper
    assembly: Assembly
    inbox: Queue[list[Entry]]
    outbox: Queue[Computed]
    cost: Cost = padded_cost
    costs: CostModel = field(default_factory=lambda: CostModel(padded_work))
    lengths: Lengths = field(default_factory=Lengths)
    pace: Pace = field(default_factory=Pace)


@dataclass(frozen=True, slots=True)
class Signals:
    """The events that steer the loops of one queue; the three stops, most urgent last, are the whole worker's."""

    paused: Event = field(default_factory=Event)
    """Fetch nothing until it is cleared."""
    repair_wanted: Event = field(default_factory=Event)
    """Entries were lost: look for records without their place."""
    device_idle: Event = field(default_factory=Event)
    """A device that computes beside the CPU has nothing to do."""
    stop_fetching: Event = field(default_factory=Event)
    """Fetch nothing more, ever."""
    stop_working: Event = field(default_factory=Event)
    """Begin no other batch, prepare nothing more."""
    stop_all: Event = field(default_factory=Event)
    """End all loops; do not even wait for the batch in hand."""

    def of_another_queue(self) -> Signals:
        """The signals of another queue of the same worker: what concerns the queue is its own."""
        return replace(self, paused=Event(), repair_wanted=Event())
