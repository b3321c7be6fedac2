"""Jobs that raise, that break the device, and that kill the process: case C18."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from cordwood.errors import JobDead, JobFailed
from cordwood.inspection import look_at_workers, queue_stats
from cordwood.result import Result
from cordwood_worker.exit_codes import ExitCode
from cordwood_worker.testing import BAD, BROKEN, KILL
from tests.fleet import QUICK, Fleet
from tests.outcomes import check_all_done, check_nothing_left, submit
from tests.waiting import wait_until

SECRET = "xyzzy"
"""A word in every text, which no log may show."""


def texts_with(marker: str, count: int = 16) -> list[str]:
    """Texts of which the one in the middle has the marker."""
    return [f"{SECRET} {marker if number == count // 2 else 'good'} {number}" for number in range(count)]


def innocent(jobs: Mapping[str, str], marker: str) -> dict[str, str]:
    """The jobs without the marker."""
    return {job_id: text for job_id, text in jobs.items() if marker not in text}


def count(fleet: Fleet, name: str) -> int:
    """One of the queue's statistics."""
    return queue_stats(fleet.redis, fleet.keys).get(name, 0)


def test_c18_a_text_that_raises_fails_alone(fleet: Fleet) -> None:
    """Part a: 31 of a batch of 32 are done, one failed with the exception's type and message; then 100 are done."""
    fleet.configure({**QUICK, "max_batch_rows": 32, "max_wait_ms": 500})
    worker = fleet.start()[0]
    jobs = submit(fleet, texts_with(BAD, 32))
    bad = next(job_id for job_id, text in jobs.items() if BAD in text)
    outcomes = fleet.client.wait_many(list(jobs), timeout_s=40)
    failed = [outcome for outcome in outcomes if not isinstance(outcome, Result)]
    assert isinstance(failed[0], JobFailed)
    assert failed[0].job_id == bad
    assert failed[0].code == "ValueError"
    assert "cannot embed this" in str(failed[0])
    assert len(failed) == 1
    check_all_done(fleet, innocent(jobs, BAD))
    check_all_done(fleet, submit(fleet, [f"{SECRET} {number}" for number in range(100)]))
    assert worker.running
    assert SECRET not in worker.log
    check_nothing_left(fleet)


@pytest.mark.timeout(180)
def test_c18_a_broken_device_ends_the_worker_and_acknowledges_nothing(fleet: Fleet) -> None:
    """Part b: exit code 4 within 10 s with the batch still pending; the next workers do the innocent jobs."""
    fleet.configure(holding=True)
    fleet.hold()
    worker = fleet.start()[0]
    jobs = dict(zip(fleet.client.submit_many(texts_with(BROKEN), max_attempts=2), texts_with(BROKEN), strict=True))
    broken = next(job_id for job_id, text in jobs.items() if BROKEN in text)
    while broken not in fleet.batch_of(worker):
        fleet.let_go()
        fleet.hold()
    batch = fleet.batch_of(worker)
    done = fleet.stat("done")
    fleet.let_go()
    assert worker.exit_code(10) == ExitCode.DEVICE_BROKEN
    assert fleet.stat("done") == done
    assert sum(fleet.pending().values()) >= len(batch)
    check_found(fleet, jobs, broken)
    assert all(other.exit_code(10) == ExitCode.DEVICE_BROKEN for other in fleet.workers if not other.running)


@pytest.mark.timeout(240)
def test_a_text_that_kills_its_process_is_found_and_its_batch_mates_are_done(fleet: Fleet) -> None:
    """It ends in the dead letters after as many deaths as it has attempts, here two; nobody else does."""
    texts = texts_with(KILL)
    jobs = dict(zip(fleet.client.submit_many(texts, max_attempts=2), texts, strict=True))
    check_found(fleet, jobs, next(job_id for job_id, text in jobs.items() if KILL in text))
    assert sum(not worker.running for worker in fleet.workers) == 2


def check_found(fleet: Fleet, jobs: Mapping[str, str], culprit: str) -> None:
    """Restart workers as a supervisor would until all jobs have ended, and check that only the culprit is dead."""
    fleet.supervise(
        lambda: all(fleet.client.result(job_id) is not None for job_id in jobs), most_starts=8, timeout_s=150
    )
    outcomes = {job_id: fleet.client.result(job_id) for job_id in jobs}
    dead = [job_id for job_id, outcome in outcomes.items() if isinstance(outcome, JobDead)]
    assert dead == [culprit]
    end = outcomes[culprit]
    assert isinstance(end, JobDead)
    assert end.code == "worker-died"
    check_all_done(fleet, {job_id: text for job_id, text in jobs.items() if job_id != culprit})
    check_nothing_left(fleet)


def test_c18_batches_that_do_not_fit_the_device_are_split_and_the_worker_learns(fleet: Fleet) -> None:
    """Part c: what fits alone is done, what does not fails as out of memory, and later batches fit at once."""
    fleet.configure({**QUICK, "max_batch_rows": 64, "max_wait_ms": 200}, options={"oom_cells": 200, "max_tokens": 512})
    worker = fleet.start()[0]
    texts = [f"{SECRET} {number:02}" for number in range(64)] + ["x" * 300]
    first = submit(fleet, texts)
    outcomes = fleet.client.wait_many(list(first), timeout_s=40)
    failed = [outcome for outcome in outcomes if not isinstance(outcome, Result)]
    assert [(type(outcome), getattr(outcome, "code", "")) for outcome in failed] == [(JobFailed, "out-of-memory")]
    assert first[getattr(failed[0], "job_id", "")] == "x" * 300
    halvings = wait_until(lambda: count(fleet, "oom_halvings"), description="the halvings are counted")
    check_again(fleet, rows=len(texts) + 200)
    learned = count(fleet, "oom_halvings")
    assert learned <= halvings + 2
    check_again(fleet, rows=len(texts) + 400)
    assert count(fleet, "oom_halvings") == learned
    wait_until(
        lambda: [view.info["max_batch_tokens"] <= 200 for view in look_at_workers(fleet.redis, fleet.keys)] == [True],
        description="the worker says with a beat what fits",
    )
    assert worker.log.count("batches may cost up to") <= 4
    assert worker.running
    assert SECRET not in worker.log


def check_again(fleet: Fleet, *, rows: int) -> None:
    """Have 200 more texts done, and wait until so many rows are counted in all."""
    check_all_done(fleet, submit(fleet, [f"{SECRET} again {number:03}" for number in range(200)]))
    wait_until(lambda: count(fleet, "rows") >= rows, description="all batches are counted")
