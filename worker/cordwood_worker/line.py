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
from cordwood_worker.janitor import Janitor
from cordwood_worker.lanes import LanePolicy
from cordwood_worker.prepare import Preparer
from cordwood_worker.run import OverlappingRunner, Runner
from cordwood_worker.stage import Staged, Stager

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
    """All loops of a worker: the stages a job passes through, and the duties beside them."""

    fetcher: Fetcher
    preparer: Preparer
    stager: Stager | None
    runner: Runner | OverlappingRunner
    finisher: Finisher
    heartbeat: Heartbeat
    renewal: Renewal
    janitor: Janitor


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


def open_flow(settings: Settings, limits: BatchLimits, backend: Backend) -> Flow:
    """Make the bounded ways between the stages."""
    ahead = settings.lookahead
    cost = packed_cost if backend.spec.packed else padded_cost
    costs = CostModel(packed_work if backend.spec.packed else padded_work)
    collector = Collector(limits, cost, LanePolicy.parse(settings.lane_weights))
    return Flow(
        held=Held(Room(rows=ahead * limits.max_rows, tokens=ahead * limits.max_tokens)),
        hopper=Hopper(collector, time.monotonic, costs),
        assembly=Assembly(backend.spec, settings.max_result_bytes),
        inbox=Queue(maxsize=ahead),
        outbox=Queue(maxsize=BATCHES_TO_STORE),
        cost=cost,
        costs=costs,
    )


def build_line(
    settings: Settings,
    server: Server,
    flow: Flow,
    backend: Backend,
    signals: Signals,
    info: Callable[[], Mapping[str, object]],
) -> Line:
    """Make the loops."""
    heartbeat = Heartbeat(server.upkeep, info, settings.heartbeat_s, signals)
    policy = LanePolicy.parse(settings.lane_weights)
    fetcher = Fetcher(server.reader, flow, signals, policy, lambda: heartbeat.workers)
    job_limits = JobLimits(settings.max_payload_bytes, settings.max_inputs)
    lease_s, upkeep = settings.lease_s, server.upkeep
    stager, runner = _build_runner(server, flow, backend, signals)
    return Line(
        fetcher=fetcher,
        preparer=Preparer(server.attempts, backend, flow, job_limits, time.monotonic),
        stager=stager,
        runner=runner,
        finisher=Finisher(server.attempts, server.counters, flow, random.SystemRandom(), time.monotonic),
        heartbeat=heartbeat,
        renewal=Renewal(upkeep, server.reader, flow.held, fetcher.pass_on, lease_s=lease_s, signals=signals),
        janitor=Janitor(upkeep, flow.held, fetcher.pass_on, signals),
    )


def _build_runner(
    server: Server, flow: Flow, backend: Backend, signals: Signals
) -> tuple[Stager | None, Runner | OverlappingRunner]:
    """Make what keeps the device busy; with a device that computes beside the CPU, batches are staged ahead of it."""
    if not (isinstance(backend, OverlappingBackend) and backend.overlaps):
        return None, Runner(server.attempts, backend, flow, signals, time.monotonic)
    staged: Queue[Staged] = Queue(maxsize=1)
    runner = OverlappingRunner(server.attempts, backend, flow, staged, signals, clock=time.monotonic)
    return Stager(backend, flow, staged, signals), runner
