"""Each stage and duty of a worker by itself, one round at a time, on the real server."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Condition
from typing import Any

import numpy as np
import pytest

from cordwood.calls import read_submissions, submit_call
from cordwood.connection import connect
from cordwood.errors import ServerUnavailable
from cordwood.inspection import look_at_job, look_at_workers, queue_stats
from cordwood.job import Job, JobLimits, encode_job
from cordwood.keys import queue_keys
from cordwood.result import JobRecord, Result, read_outcome
from cordwood.settings import QueueSettings, Settings
from cordwood_worker.batch import Batch
from cordwood_worker.flow import Computed, Flow, Signals
from cordwood_worker.line import Line, Server, batch_limits, build_engine, build_line, open_flow, open_server
from cordwood_worker.served import WayOut
from cordwood_worker.testing import FaultBackend, fault_backend, fault_vector

LIMITS = JobLimits(max_payload_bytes=10_000, max_inputs=4)
QUEUE = QueueSettings(model="python:cordwood_worker.testing:fault_backend", max_wait_ms=0.0)


class Stages:
    """A worker whose loops are run by the test."""

    def __init__(self, url: str) -> None:
        self.settings = Settings(queues={"embed": QUEUE}, heartbeat_s=0.2, heartbeat_ttl_s=1.0)
        self.redis = connect(url)
        self.keys = queue_keys("embed")
        self.backend = fault_backend(QUEUE)
        self.signals = Signals()
        self.server: Server = open_server(self.settings, url, self.keys, "host.1.abc")
        changed = Condition()
        self.flow: Flow = open_flow(self.settings, batch_limits(self.settings, "embed"), self.backend, changed)
        self.line: Line = build_line(
            self.settings, "embed", self.server, self.flow, self.backend, self.signals, info=lambda: {"held": 0}
        )
        self.engine = build_engine([self.line], self.signals, changed)
        self.server.reader.create_groups()
        self.line.heartbeat.beat()

    def submit(self, *texts: str, **fields: object) -> list[str]:
        """Submit one job for each text and return the IDs."""
        defaults = Job(inputs=(), max_attempts=2, result_ttl_s=100.0)
        jobs = [encode_job(Job(inputs=(text,), **fields), LIMITS, defaults) for text in texts]  # type: ignore[arg-type]
        reply = self.server.attempts._queue.call(
            "submit", [job.id for job in jobs], submit_call(self.keys, jobs, max_depth=100, waiter_mask=1).args
        )
        assert all(item.accepted for item in read_submissions(jobs, reply))
        return [job.id for job in jobs]

    def record(self, job_id: str) -> JobRecord:
        """Read a job's record."""
        record = look_at_job(self.redis, self.keys, job_id)
        assert record is not None
        return record

    def work(self) -> None:
        """Take everything that is ready through all stages, once."""
        self.line.fetcher.run_once()
        while self.flow.inbox.qsize():
            self.line.preparer.run_once()
        while len(self.flow.hopper._collector):
            self.engine.runner.run_once()
            self.line.finisher.run_once()


@pytest.fixture
def stages(redis_url: str) -> Iterator[Stages]:
    """The stages of one worker."""
    made = Stages(redis_url)
    yield made
    made.redis.close()


def test_a_job_goes_through_all_stages_to_its_own_result(stages: Stages) -> None:
    """And nothing of it stays in the worker."""
    first, second = stages.submit("one", "two")
    stages.work()
    for job_id, text in ((first, "one"), (second, "two")):
        outcome = read_outcome(job_id, stages.record(job_id))
        assert isinstance(outcome, Result)
        assert np.array_equal(outcome.vector, fault_vector(text, 8))
    assert len(stages.flow.held) == 0
    assert stages.line.finisher.is_idle
    assert queue_stats(stages.redis, stages.keys)["rows"] == 2


def test_a_payload_that_cannot_be_read_is_a_dead_letter_and_its_neighbour_is_done(stages: Stages) -> None:
    """With the reason on the record."""
    bad, good = stages.submit("bad", "good")
    stages.redis.hset(stages.keys.job(bad), "pl", b"\xc1 garbage")
    stages.work()
    assert (stages.record(bad).state, stages.record(bad).error_code) == ("dead", "bad-payload")
    assert stages.record(good).state == "done"


def test_a_job_for_another_task_fails_and_says_what_is_served(stages: Stages) -> None:
    """At once, before it costs device time."""
    (job_id,) = stages.submit("text", task="classify")
    stages.work()
    record = stages.record(job_id)
    assert (record.state, record.error) == ("failed", "it asks for classify, the queue serves embed")


def test_an_input_that_the_tokeniser_refuses_costs_only_its_own_job(stages: Stages) -> None:
    """Found by trying each job of the group alone."""
    pair = ("a", "pair")
    (bad,) = stages.submit(pair)  # type: ignore[arg-type]
    (good,) = stages.submit("good")
    stages.work()
    assert (stages.record(bad).state, stages.record(bad).error_code) == ("failed", "invalid-input")
    assert stages.record(good).state == "done"


def test_a_server_that_is_away_when_a_start_is_due_costs_nothing(stages: Stages) -> None:
    """The entries wait in the stage, and are started when it is back."""
    (job_id,) = stages.submit("text")
    stages.line.fetcher.run_once()
    away = connect("unix:///nowhere/server.sock")
    attempts, queue = stages.server.attempts, stages.server.attempts._queue
    attempts._queue = type(queue)(away, queue.keys, queue.consumer)
    with pytest.raises(ServerUnavailable):
        stages.line.preparer.run_once()
    attempts._queue = queue
    stages.line.preparer.run_once()
    stages.engine.runner.run_once()
    stages.line.finisher.run_once()
    assert stages.record(job_id).state == "done"


def test_outcomes_that_could_not_be_stored_are_stored_later(stages: Stages) -> None:
    """The finisher keeps them; nothing was acknowledged."""
    (job_id,) = stages.submit("text")
    stages.line.fetcher.run_once()
    stages.line.preparer.run_once()
    stages.engine.runner.run_once()
    attempts, queue = stages.server.attempts, stages.server.attempts._queue
    attempts._queue = type(queue)(connect("unix:///nowhere/server.sock"), queue.keys, queue.consumer)
    with pytest.raises(ServerUnavailable):
        stages.line.finisher.run_once()
    assert not stages.line.finisher.is_idle
    assert stages.record(job_id).state == "running"
    attempts._queue = queue
    stages.line.finisher.run_once()
    assert (stages.record(job_id).state, stages.line.finisher.is_idle) == ("done", True)


class Odd(FaultBackend):
    """A backend that answers for one row too few."""

    def run(self, batch: Batch) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        """Return nothing at all."""
        return np.zeros((len(batch.rows) - 1, 8), dtype=np.float32)


def test_a_backend_at_fault_sends_the_job_to_another_attempt_then_to_the_dead_letters(stages: Stages) -> None:
    """The input is not at fault, so the job is not failed; its attempts are bounded."""
    (job_id,) = stages.submit("text")
    device: Any = stages.line.served.device
    device._backend = Odd(fault_backend(QUEUE)._options)
    stages.work()
    record = stages.record(job_id)
    assert (record.state, record.error_code, record.attempts) == ("delayed", "bad-backend", 1)
    stages.redis.zadd(stages.keys.named("delayed"), {job_id: 0})
    stages.server.upkeep.promote()
    stages.work()
    assert (stages.record(job_id).state, stages.record(job_id).attempts) == ("dead", 2)


def test_a_marked_batch_is_noted_while_it_runs_and_cleared_when_the_device_is_idle(stages: Stages) -> None:
    """The note makes suspects if the process dies in between."""
    (job_id,) = stages.submit("text")
    stages.line.fetcher.run_once()
    stages.line.preparer.run_once()
    stages.engine.runner.run_once()
    assert stages.redis.hgetall(stages.keys.named("batch")) == {b"host.1.abc:run": job_id.encode()}
    stages.engine.runner.run_once()
    assert stages.redis.hgetall(stages.keys.named("batch")) == {}
    stages.line.finisher.run_once()


def test_a_full_outbox_makes_the_device_wait_until_all_is_ended(stages: Stages) -> None:
    """Back-pressure, and a way out of it."""
    stages.flow.outbox.put(Computed(Batch(()), [], 0.0))
    stages.flow.outbox.put(Computed(Batch(()), [], 0.0))
    stages.signals.stop_all.set()
    WayOut(stages.flow, stages.signals).pass_on(Computed(Batch(()), [], 0.0))
    assert stages.flow.outbox.qsize() == 2


def test_a_paused_worker_fetches_nothing(stages: Stages) -> None:
    """It learns of the pause with its beat."""
    stages.redis.hset(stages.keys.named("meta"), "paused", 1)
    stages.line.heartbeat.beat()
    stages.signals.stop_fetching.set()
    (job_id,) = stages.submit("text")
    stages.line.fetcher.run_once()
    assert len(stages.flow.held) == 0
    stages.redis.hdel(stages.keys.named("meta"), "paused")
    stages.line.heartbeat.beat()
    stages.work()
    assert stages.record(job_id).state == "done"


def test_entries_of_a_lost_reply_are_taken_up_by_the_self_check(stages: Stages) -> None:
    """At the second look; the worker lives, so nobody else would."""
    (job_id,) = stages.submit("text")
    stages.server.reader.wait(10, 1000)
    stages.line.renewal.renew()
    assert stages.flow.inbox.empty()
    stages.line.renewal.renew()
    stages.line.preparer.run_once()
    stages.engine.runner.run_once()
    stages.line.finisher.run_once()
    assert stages.record(job_id).state == "done"


def test_a_deleted_stream_is_created_again_and_its_jobs_come_back(stages: Stages) -> None:
    """The fetcher notices, the janitor repairs."""
    (job_id,) = stages.submit("text")
    stages.redis.delete(stages.keys.lane("normal"))
    stages.line.fetcher.run_once()
    assert stages.signals.repair_wanted.is_set()
    stages.signals.stop_fetching.set()
    stages.line.janitor.run_once()
    stages.work()
    assert stages.record(job_id).state == "done"


def test_the_registry_shows_what_a_worker_says_of_itself(stages: Stages) -> None:
    """With the age of its last sign of life."""
    (view,) = look_at_workers(stages.redis, stages.keys)
    assert (view.consumer, dict(view.info)) == ("host.1.abc", {"held": 0})
    assert 0 <= view.age_ms < 5000
