"""Putting a worker's parts together: which part is made of which."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from queue import Queue
from typing import TYPE_CHECKING, Final

from cordwood import connection
from cordwood.connection import Patience
from cordwood.job import JobLimits
from cordwood.keys import Keys
from cordwood_worker.assembly import Assembly
from cordwood_worker.backends import OverlappingBackend
from cordwood_worker.broker.attempts import Attempts
from cordwood_worker.broker.connection import QueueConnection
from cordwood_worker.broker.counters import Counters
from cordwood_worker.broker.lanes import LaneReader
from cordwood_worker.broker.upkeep import Upkeep
from cordwood_worker.collect import Collector
from cordwood_worker.cost_model import CostModel, packed_work, padded_work
from cordwood_worker.draft import BatchLimits, packed_cost, padded_cost
from cordwood_worker.fetch import BLOCK_MS, Fetcher
from cordwood_worker.finish import Finisher
from cordwood_worker.flow import Flow, Signals
from cordwood_worker.heartbeat import Heartbeat, Renewal
from cordwood_worker.held import Held, Room
from cordwood_worker.hopper import Hopper
from cordwood_worker.hoppers import Hoppers
from cordwood_worker.janitor import Janitor
from cordwood_worker.lanes import LanePolicy
from cordwood_worker.prepare import Preparer
from cordwood_worker.run import OverlappingRunner, Runner
from cordwood_worker.served import Served
from cordwood_worker.stage import Staged, Stager

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from threading import Condition

    from cordwood.settings import Settings
    from cordwood_worker.backends import Backend

READ_PATIENCE: Final = Patience(timeout_s=BLOCK_MS / 1000 + 4.0, retries=0)
BYPASS_PER_BATCH_AHEAD: Final = 4
"""Four times the batches of lookahead cost no padding; twice cost 5 to 6 points at 4 and 8 batches, once 30 and more.

Measured with `python -m tests.docs.figures padding`.
"""
BATCHES_TO_STORE: Final = 2
"""Computed batches that may wait to be stored: then the device waits for the server."""


@dataclass(frozen=True, slots=True)
class Server:
    """A worker's ways to the server, one for each kind of use."""

    attempts: Attempts
    upkeep: Upkeep
    counters: Counters
    reader: LaneReader


@dataclass(frozen=True, slots=True)
class Line:
    """What serves one queue: its stages but the device, the duties beside them, and what all of them share."""

    queue: str
    backend: Backend
    server: Server
    flow: Flow
    signals: Signals
    served: Served
    fetcher: Fetcher
    preparer: Preparer
    finisher: Finisher
    heartbeat: Heartbeat
    renewal: Renewal
    janitor: Janitor


@dataclass(frozen=True, slots=True)
class Engine:
    """What keeps the device busy with the batches of all queues, and stages them ahead where it can."""

    runner: Runner | OverlappingRunner
    stager: Stager | None = None


def batch_limits(settings: Settings, queue: str, best_tokens: int = 0) -> BatchLimits:
    """The limits of a queue's batches, as the batch former wants them: no more tokens than a backend found best."""
    budget = settings.batch_limits(queue)
    return BatchLimits(
        max_tokens=min(budget.max_tokens, best_tokens or budget.max_tokens),
        max_rows=budget.max_rows,
        max_wait_s=budget.max_wait_ms / 1000,
        max_bypass=BYPASS_PER_BATCH_AHEAD * settings.lookahead,
    )


def open_server(settings: Settings, url: str, keys: Keys, consumer: str) -> Server:
    """Make the connections: one pool for scripts, and one connection for reading that never repeats a read."""
    scripts = QueueConnection(connection.connect(url), keys, consumer)
    reads = QueueConnection(connection.connect(url, READ_PATIENCE, max_connections=2), keys, consumer)
    beat_s, ttl_s = settings.heartbeat_s, settings.heartbeat_ttl_s
    return Server(
        attempts=Attempts(scripts, settings.dead_ttl_s, time.monotonic),
        upkeep=Upkeep(scripts, heartbeat_s=beat_s, ttl_s=ttl_s, clock=time.monotonic),
        counters=Counters(scripts),
        reader=LaneReader(reads, time.monotonic),
    )


def open_flow(settings: Settings, limits: BatchLimits, backend: Backend, changed: Condition | None = None) -> Flow:
    """Make the bounded ways between the stages; the hoppers of queues that share a device share `changed`."""
    ahead = settings.lookahead
    cost = packed_cost if backend.spec.packed else padded_cost
    costs = CostModel(packed_work if backend.spec.packed else padded_work)
    collector = Collector(limits, cost, LanePolicy.parse(settings.lane_weights))
    return Flow(
        held=Held(Room(rows=ahead * limits.max_rows, tokens=ahead * limits.max_tokens)),
        hopper=Hopper(collector, time.monotonic, costs, changed),
        assembly=Assembly(backend.spec, settings.max_result_bytes),
        inbox=Queue(maxsize=ahead),
        outbox=Queue(maxsize=BATCHES_TO_STORE),
        cost=cost,
        costs=costs,
    )


def build_line(
    settings: Settings,
    queue: str,
    server: Server,
    flow: Flow,
    backend: Backend,
    signals: Signals,
    *,
    info: Callable[[], Mapping[str, object]],
) -> Line:
    """Make the loops of one queue."""
    heartbeat = Heartbeat(server.upkeep, info, settings.heartbeat_s, signals)
    policy = LanePolicy.parse(settings.lane_weights)
    fetcher = Fetcher(server.reader, flow, signals, policy, lambda: heartbeat.workers)
    job_limits = JobLimits(settings.max_payload_bytes, settings.max_inputs)
    lease_s, upkeep = settings.lease_s, server.upkeep
    return Line(
        queue=queue,
        backend=backend,
        server=server,
        flow=flow,
        signals=signals,
        served=Served.of(queue, settings.queue(queue).weight, backend, flow, server.attempts, signals),
        fetcher=fetcher,
        preparer=Preparer(server.attempts, backend, flow, job_limits, time.monotonic),
        finisher=Finisher(server.attempts, server.counters, flow, random.SystemRandom(), time.monotonic),
        heartbeat=heartbeat,
        renewal=Renewal(upkeep, server.reader, flow.held, fetcher.pass_on, lease_s=lease_s, signals=signals),
        janitor=Janitor(upkeep, flow.held, fetcher.pass_on, signals),
    )


def build_engine(lines: Sequence[Line], signals: Signals, changed: Condition) -> Engine:
    """Make what keeps the device busy; with one that computes beside the CPU, batches are staged ahead of it."""
    hoppers = Hoppers([line.served for line in lines], changed)
    if not all(isinstance(line.backend, OverlappingBackend) and line.backend.overlaps for line in lines):
        return Engine(Runner(hoppers, time.monotonic))
    staged: Queue[Staged] = Queue(maxsize=1)
    runner = OverlappingRunner(hoppers, staged, signals, clock=time.monotonic)
    return Engine(runner, Stager(hoppers, staged, signals))
