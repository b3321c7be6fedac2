"""How a worker stops: case C21, and `--burst`."""

from __future__ import annotations

import signal
import time
from collections.abc import Collection

import pytest

from cordwood_worker.exit_codes import ExitCode
from tests.fleet import PATIENT, Fleet, WorkerProcess
from tests.outcomes import check_all_done, check_nothing_left, submit


def stop(worker: WorkerProcess) -> None:
    """Send SIGTERM, and return when the worker has taken it in."""
    worker.send(signal.SIGTERM)
    worker.wait_for_log("stopping")


def check_queued(fleet: Fleet, job_ids: Collection[str]) -> None:
    """Check that jobs wait in lanes, in nobody's hands, with no attempt counted."""
    records = [fleet.client.get(job_id) for job_id in job_ids]
    assert {(record.state, record.attempts) for record in records} == {("queued", 0)}
    assert fleet.pending() == {}
    assert sum(fleet.lengths().values()) == len(job_ids)


@pytest.mark.leaves_jobs
def test_c21_sigterm_in_mid_batch_finishes_that_batch_and_hands_back_the_rest(fleet: Fleet) -> None:
    """Part a: no new batch begins, the current one is stored, exit code 0, others queued with attempts unchanged."""
    fleet.configure(PATIENT, holding=True)
    fleet.hold()
    worker = fleet.start()[0]
    jobs = submit(fleet, [f"text {number}" for number in range(100)])
    batch = fleet.batch_of(worker)
    stop(worker)
    fleet.let_go()
    assert worker.exit_code(6) == ExitCode.CLEAN
    check_all_done(fleet, {job_id: jobs[job_id] for job_id in batch}, timeout_s=0)
    assert fleet.stat("done") == len(batch)
    check_queued(fleet, jobs.keys() - set(batch))
    assert fleet.redis.xinfo_consumers(fleet.keys.lane("normal"), "workers") == []


@pytest.mark.timeout(120)
def test_c21_a_batch_that_outlasts_the_drain_is_handed_back_at_once(fleet: Fleet) -> None:
    """Part b: exit code 3 when the drain is over; another worker does the jobs within 5 s, as first attempts."""
    fleet.configure(PATIENT, holding=True, drain_s=1.0)
    fleet.hold()
    worker = fleet.start()[0]
    jobs = submit(fleet, [f"text {number}" for number in range(30)])
    fleet.batch_of(worker)
    fleet.configure(PATIENT)
    fleet.start()
    began_s = time.monotonic()
    stop(worker)
    assert worker.exit_code(3) == ExitCode.DRAIN_TIMED_OUT
    assert time.monotonic() - began_s > 1.0
    check_all_done(fleet, jobs, timeout_s=5)
    assert {fleet.client.get(job_id).attempts for job_id in jobs} == {1}
    check_nothing_left(fleet)


@pytest.mark.leaves_jobs
def test_c21_a_second_sigterm_hands_back_everything_within_2_s(fleet: Fleet) -> None:
    """Part c: whatever the drain timeout is, and the batch in hand too."""
    fleet.configure(PATIENT, holding=True, drain_s=60.0)
    fleet.hold()
    worker = fleet.start()[0]
    jobs = submit(fleet, [f"text {number}" for number in range(30)])
    fleet.batch_of(worker)
    stop(worker)
    began_s = time.monotonic()
    worker.send(signal.SIGTERM)
    assert worker.exit_code(10) == ExitCode.DRAIN_TIMED_OUT
    assert time.monotonic() - began_s < 2
    check_queued(fleet, jobs.keys())


def test_a_stopped_worker_takes_nothing_with_it(fleet: Fleet) -> None:
    """Idle ones end with exit code 0 and leave the registry and the groups."""
    workers = fleet.start(2)
    check_all_done(fleet, submit(fleet, ["a text"]))
    workers[0].send(signal.SIGTERM)
    workers[1].send(signal.SIGINT)
    assert [worker.exit_code() for worker in workers] == [ExitCode.CLEAN, ExitCode.CLEAN]
    assert fleet.redis.zcard(fleet.keys.named("workers")) == 0
    assert fleet.redis.hlen(fleet.keys.named("info")) == 0
    assert all(
        fleet.redis.xinfo_consumers(fleet.keys.lane(lane), "workers") == [] for lane in ("again", "high", "normal")
    )
    check_nothing_left(fleet)


def test_burst_works_until_the_queue_is_empty_and_exits_with_0(fleet: Fleet) -> None:
    """Every worker of a fleet, whether it got any of the jobs or came too late."""
    jobs = submit(fleet, [f"text {number}" for number in range(100)])
    workers = [fleet.spawn("--burst") for _ in range(2)]
    assert [worker.exit_code(60) for worker in workers] == [ExitCode.CLEAN, ExitCode.CLEAN]
    check_all_done(fleet, jobs, timeout_s=0)
    assert all("handed back 0" in worker.log for worker in workers)
    check_nothing_left(fleet)
