"""Workers and applications in one thread, for tests of single scripts."""

from __future__ import annotations

from typing import Any, Final

from cordwood.calls import read_submissions, submit_call, sweep_call
from cordwood.errors import Submission
from cordwood.job import EncodedJob, Job, JobLimits, encode_job
from cordwood.steps import ScriptCall
from cordwood_worker.allowance import allow
from cordwood_worker.broker.attempts import Attempts, Done, Fault
from cordwood_worker.broker.lanes import LaneReader
from cordwood_worker.broker.upkeep import Upkeep
from cordwood_worker.entry import Attempt, Entry
from cordwood_worker.lanes import LanePolicy
from tests.interleaving.actors import DEAD_TTL_S, HEARTBEAT_S, TTL_S, FaultyConnection
from tests.interleaving.world import World

LIMITS: Final = JobLimits(max_payload_bytes=10_000, max_inputs=4)
DEFAULTS: Final = Job(inputs=(), max_attempts=3, result_ttl_s=100.0)
TTL_MS: Final = round(TTL_S * 1000)


def done(attempt: Attempt, result: bytes = b"result") -> Done:
    """A job that is to end as done."""
    return Done(attempt, result)


def fault(attempt: Attempt, code: str = "code") -> Fault:
    """A job that is to end otherwise."""
    return Fault(attempt, code, "text")


class Hand:
    """One worker, whose every command is a call of the test."""

    def __init__(self, world: World, name: str) -> None:
        connection = FaultyConnection(world.redis, world.keys, name, world)
        self.name = name
        self.connection = connection
        self.attempts = Attempts(connection, DEAD_TTL_S, lambda: 0.0)
        self.reader = LaneReader(connection, lambda: 0.0)
        self.upkeep = Upkeep(connection, heartbeat_s=HEARTBEAT_S, ttl_s=TTL_S, clock=lambda: 0.0)
        self.reader.create_groups()
        self.upkeep.beat(b"")

    def read(self, room: int = 100) -> list[Entry]:
        """Fetch what is there."""
        return self.reader.read(allow(LanePolicy(), {}, room, room))

    def begin(self, entries: list[Entry] | None = None) -> list[Attempt]:
        """Start what it is given, or what is there."""
        answers = self.attempts.start(self.read() if entries is None else entries)
        return [answer for answer in answers if isinstance(answer, Attempt)]


class Bench:
    """A queue with applications and workers."""

    def __init__(self, redis: Any) -> None:
        self.world = World(redis, "bench")
        self.redis = redis
        self.keys = self.world.keys

    def hire(self, name: str) -> Hand:
        """Return a worker that has beaten once."""
        return Hand(self.world, name)

    def submit(self, *job_ids: str, mask: int = 1, max_depth: int = 1000, **fields: Any) -> list[Submission]:
        """Submit jobs whose text is their ID."""
        jobs = [self.encoded(job_id, **fields) for job_id in job_ids]
        call = submit_call(self.keys, jobs, max_depth=max_depth, waiter_mask=mask)
        return read_submissions(jobs, self.world.call(call))

    def cancelling(self, *job_ids: str) -> ScriptCall:
        """Return the call that cancels these jobs."""
        return sweep_call("cancel", self.keys, job_ids)

    def encoded(self, job_id: str, **fields: Any) -> EncodedJob:
        """Encode a job whose text is its ID, unless `inputs` says otherwise."""
        return encode_job(Job(id=job_id, **{"inputs": (job_id,), **fields}), LIMITS, DEFAULTS)

    def field(self, job_id: str, name: str) -> str:
        """Read one field of a record, '' where there is none."""
        value: Any = self.redis.hget(self.keys.job(job_id), name)
        return (value or b"").decode()

    def states(self, *job_ids: str) -> list[str]:
        """Read the states of jobs."""
        return [self.field(job_id, "st") for job_id in job_ids]
