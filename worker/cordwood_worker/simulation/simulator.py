"""A fleet of workers on a simulated clock: their batch formers, lanes, patience and cost models are the real ones."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from math import inf
from random import Random
from typing import TYPE_CHECKING, Final

import numpy as np

from cordwood.keys import LANES
from cordwood_worker.allowance import allow, fair_room
from cordwood_worker.batch import Batch, Row, Tokens
from cordwood_worker.collect import Collector
from cordwood_worker.cost_model import Coefficients, CostModel, packed_work, padded_work
from cordwood_worker.departures import Departures
from cordwood_worker.draft import BatchLimits, packed_cost, padded_cost
from cordwood_worker.fetch import MAX_PER_READ
from cordwood_worker.lanes import LanePolicy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cordwood_worker.simulation.arrivals import Arrivals

MEAN_MEMORY: Final = 0.1
"""How much the newest job counts in a worker's running mean of lengths."""


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """What is simulated: so many like devices, what a batch may be, how far workers look ahead, what batches cost.

    `overhead_s` passes between a job's arrival and its being ready for a batch, `gap_s` before each batch, `store_s`
    between its end and its results' being there; `noise` is the standard deviation of the logarithm of a batch's time.
    """

    devices: int
    limits: BatchLimits
    lookahead: int
    coefficients: Coefficients
    packed: bool
    policy: LanePolicy = field(default_factory=LanePolicy)
    overhead_s: float = 0.0
    gap_s: float = 0.0
    store_s: float = 0.0
    noise: float = 0.0
    seed: int = 0


@dataclass(slots=True)
class Tally:
    """What came of a run. Times in seconds of the simulated clock, one entry a job in the order of arrival.

    `began_s` is when the job's batch began, `ended_s` when it was done; `rows_s` are the times of batches, each as
    often as it has rows; `cells` are the tokens that were computed with their padding.
    """

    began_s: NDArray[np.float64]
    ended_s: NDArray[np.float64]
    busy_s: float = 0.0
    rows_s: float = 0.0
    batches: int = 0
    tokens: int = 0
    cells: int = 0


class _Device:
    """One worker: what it has fetched, what it computes, and what it has learned."""

    def __init__(self, plan: FleetPlan) -> None:
        work, cost = (packed_work, packed_cost) if plan.packed else (padded_work, padded_cost)
        self.costs = CostModel(work)
        self.departures = Departures(Collector(plan.limits, cost, plan.policy), self.costs)
        self.held = Counter[str]()
        self.total = 0
        self.tokens = 0
        self.mean = 64.0
        self.batch: Batch | None = None
        self.batch_s = 0.0
        self.wakes_s = inf
        self.is_waiting = False

    def note(self, lane: str, tokens: int) -> None:
        """Hold one job more."""
        self.held[lane] += 1
        self.total += 1
        self.tokens += tokens
        self.mean += MEAN_MEMORY * (tokens - self.mean)

    def release(self, batch: Batch) -> None:
        """Let the jobs of a batch go."""
        for row in batch.rows:
            self.held[row.lane] -= 1
            self.tokens -= row.length
        self.total -= len(batch.rows)


class Simulator:
    """Runs arrivals through a fleet; use it once.

    Events are arrivals, ends of batches and ends of waits. A worker that found nothing waits for an entry, the one
    that has waited longest first, as the server wakes readers; one that holds its part fetches as its batches end, or
    when a job of a lane comes of which it holds less than its share.
    """

    def __init__(self, arrivals: Arrivals, plan: FleetPlan) -> None:
        self._plan = plan
        self._times: list[float] = (arrivals.at_s + plan.overhead_s).tolist()
        self._tokens: list[int] = arrivals.tokens.tolist()
        self._lanes: list[str] = [LANES[code] for code in arrivals.lanes.tolist()]
        self._ready = {lane: deque[int]() for lane in LANES}
        self._in_lanes = 0
        self._devices = [_Device(plan) for _ in range(plan.devices)]
        self._waiting = deque(self._devices)
        self._numbers = {id(device): number for number, device in enumerate(self._devices)}
        self._events: list[tuple[float, int, int, bool]] = []
        self._event_numbers = count()
        self._random = Random(plan.seed)  # noqa: S311 - not for secrets
        self._offered = 0
        self._began = [0.0] * len(arrivals)
        self._ended = [0.0] * len(arrivals)
        self._tally = Tally(np.zeros(0), np.zeros(0))
        for device in self._devices:
            device.is_waiting = True

    def run(self) -> Tally:
        """Let all jobs come and be computed."""
        times, events, at, total = self._times, self._events, 0, len(self._times)
        while at < total or events:
            if at < total and (not events or times[at] <= events[0][0]):
                at = self._arrive(at)
            else:
                now_s, _, number, ends = heappop(events)
                (self._end if ends else self._wake)(self._devices[number], now_s)
        self._tally.began_s = np.array(self._began)
        self._tally.ended_s = np.array(self._ended)
        return self._tally

    def _arrive(self, at: int) -> int:
        """Take in all jobs that come at one time, and return the number of the next."""
        now_s, total = self._times[at], len(self._times)
        while at < total and self._times[at] == now_s:
            self._ready[self._lanes[at]].append(at)
            self._in_lanes += 1
            at += 1
        while self._in_lanes and self._waiting:
            device = self._waiting.popleft()
            device.is_waiting = False
            before = self._in_lanes
            self._fetch(device, now_s)
            if self._in_lanes == before:
                break
        if self._in_lanes:
            self._offer(self._lanes[at - 1], now_s)
        return at

    def _offer(self, lane: str, now_s: float) -> None:
        """Have one more worker look whether it holds less of this lane than its share."""
        self._offered = (self._offered + 1) % len(self._devices)
        device = self._devices[self._offered]
        capacity = self._capacity(device)
        if device.held[lane] < self._plan.policy.shares(capacity)[lane]:
            self._fetch(device, now_s)

    def _wake(self, device: _Device, now_s: float) -> None:
        """A wait has ended, unless it was given up for a batch or for a shorter one."""
        if device.batch is None and now_s == device.wakes_s:
            device.wakes_s = inf
            self._begin(device, now_s)

    def _end(self, device: _Device, now_s: float) -> None:
        """A batch has ended."""
        batch, device.batch = device.batch, None
        if batch is None:
            raise RuntimeError("a batch ended that had not begun")
        device.costs.note(batch, device.batch_s)
        for row in batch.rows:
            self._ended[row.index] = now_s + self._plan.store_s
        # The next batch is begun before the results of the last one are stored and give room.
        self._begin(device, now_s)
        device.release(batch)
        self._fetch(device, now_s)

    def _fetch(self, device: _Device, now_s: float) -> None:
        """Fetch as long as there is something and room for it; a worker that finds nothing waits."""
        room = 1
        while self._in_lanes and room:
            capacity = self._capacity(device)
            room = min(max(0 if device.total else 1, capacity - device.total), MAX_PER_READ)
            if len(self._devices) > 1:
                depth = self._in_lanes + sum(each.total for each in self._devices)
                room = min(room, fair_room(depth, len(self._devices), device.total))
            if not self._read(device, room, capacity, now_s):
                break
        if not self._in_lanes and room and not device.is_waiting:
            device.is_waiting = True
            self._waiting.append(device)

    def _capacity(self, device: _Device) -> int:
        limits, ahead = self._plan.limits, self._plan.lookahead
        return max(1, min(ahead * limits.max_rows, int(ahead * limits.max_tokens / device.mean)))

    def _read(self, device: _Device, room: int, capacity: int, now_s: float) -> bool:
        """Read as `LaneReader.read` does, and see whether that makes a batch; return whether anything was read."""
        allowance = allow(self._plan.policy, device.held, room, capacity)
        taken: list[int] = []
        for lane in LANES:
            queue = self._ready[lane]
            taken += [queue.popleft() for _ in range(min(len(queue), allowance.lanes[lane]))]
        for lane in LANES:
            queue = self._ready[lane]
            taken += [queue.popleft() for _ in range(min(len(queue), max(0, allowance.more - len(taken))))]
        if not taken:
            return False
        self._in_lanes -= len(taken)
        rows = [Row(str(at), at, Tokens(range(self._tokens[at])), now_s, lane=self._lanes[at]) for at in taken]
        for row in rows:
            device.note(row.lane, row.length)
        device.departures.add(rows, len(rows), now_s)
        self._begin(device, now_s)
        return True

    def _begin(self, device: _Device, now_s: float) -> None:
        """Begin a batch if the device is idle and one leaves now; else look again when the wait is over."""
        if device.batch is not None:
            return
        batch = device.departures.take(now_s, idle=True)
        number = self._numbers[id(device)]
        if batch is None:
            wait_s = device.departures.wait_s(now_s, idle=True)
            if wait_s is not None and now_s + wait_s < device.wakes_s:
                device.wakes_s = now_s + wait_s
                heappush(self._events, (device.wakes_s, next(self._event_numbers), number, False))
            return
        device.batch, device.batch_s, device.wakes_s = batch, self._seconds(batch), inf
        begins_s = now_s + self._plan.gap_s
        for row in batch.rows:
            self._began[row.index] = begins_s
        heappush(self._events, (begins_s + device.batch_s, next(self._event_numbers), number, True))
        self._note(batch, device.batch_s)

    def _seconds(self, batch: Batch) -> float:
        """How long the batch takes."""
        work = packed_work(batch) if self._plan.packed else padded_work(batch)
        cost = self._plan.coefficients
        seconds = cost.token_s * work.tokens + cost.row_s * work.rows + cost.square_s * work.squares + cost.batch_s
        return seconds * self._random.lognormvariate(0.0, self._plan.noise) if self._plan.noise else seconds

    def _note(self, batch: Batch, seconds: float) -> None:
        tally, tokens = self._tally, batch.real_tokens
        tally.busy_s += seconds
        tally.rows_s += seconds * len(batch.rows)
        tally.batches += 1
        tally.tokens += tokens
        tally.cells += tokens if self._plan.packed else batch.padded_tokens
