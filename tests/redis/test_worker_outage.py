"""Streams and groups that vanish under idle and busy workers: case C22, parts a to c."""

from __future__ import annotations

import time

import pytest

from tests.fleet import PATIENT, Fleet
from tests.outcomes import check_all_done, check_nothing_left, submit
from tests.waiting import wait_until

READ_AGAIN_S = 5.0


def texts(count: int, what: str = "text") -> list[str]:
    """Texts that differ."""
    return [f"{what} {number}" for number in range(count)]


def test_c22_idle_workers_read_again_after_flushall(fleet: Fleet) -> None:
    """Part a: 50 jobs enqueued right after it are done within 5 s, and the queue is as it was before."""
    fleet.start(2)
    spec = fleet.redis.hgetall(fleet.keys.named("spec"))
    check_all_done(fleet, submit(fleet, ["before"]))
    fleet.redis.flushall()
    began_s = time.monotonic()
    check_all_done(fleet, submit(fleet, texts(50)), timeout_s=READ_AGAIN_S)
    assert time.monotonic() - began_s < READ_AGAIN_S
    check_nothing_left(fleet)
    wait_until(lambda: fleet.redis.hgetall(fleet.keys.named("spec")) == spec, description="it says what it serves")
    assert fleet.redis.smembers("cw:queues") == {b"embed"}
    assert all(worker.log.count("WARNING") + worker.log.count("ERROR") < 10 for worker in fleet.workers)


@pytest.mark.timeout(120)
def test_c22_a_deleted_stream_brings_its_queued_jobs_back(fleet: Fleet) -> None:
    """Part b: DEL of the stream with jobs queued and in hand; all of them are done, and 50 later ones."""
    fleet.configure(PATIENT, holding=True, options={"delay_s": 0.2})
    fleet.hold()
    worker = fleet.start()[0]
    jobs = submit(fleet, texts(100))
    fleet.batch_of(worker)
    fleet.redis.delete(fleet.keys.lane("normal"))
    fleet.let_go()
    later = submit(fleet, texts(50, "later"))
    check_all_done(fleet, jobs | later, timeout_s=15)
    assert fleet.stat("done") == len(jobs) + len(later)
    check_nothing_left(fleet)


@pytest.mark.timeout(120)
def test_c22_a_destroyed_group_is_created_again_from_the_start_of_its_stream(fleet: Fleet) -> None:
    """Part c: 10 jobs that nobody has read yet are done, as are those in hand and 50 later ones."""
    fleet.configure(PATIENT, holding=True, lookahead=1)
    fleet.hold()
    worker = fleet.start()[0]
    jobs = submit(fleet, texts(26))
    fleet.batch_of(worker)
    fleet.redis.xgroup_destroy(fleet.keys.lane("normal"), "workers")
    fleet.let_go()
    later = submit(fleet, texts(50, "later"))
    check_all_done(fleet, jobs | later, timeout_s=15)
    assert fleet.stat("done") == len(jobs) + len(later)
    check_nothing_left(fleet)


def test_c22_idle_workers_read_again_after_their_groups_were_destroyed(fleet: Fleet) -> None:
    """In a blocking read on all lanes, the groups of all of them."""
    fleet.start(2)
    check_all_done(fleet, submit(fleet, ["before"]))
    for lane in ("again", "high", "normal", "low"):
        fleet.redis.xgroup_destroy(fleet.keys.lane(lane), "workers")
    began_s = time.monotonic()
    check_all_done(fleet, submit(fleet, texts(50)), timeout_s=READ_AGAIN_S)
    assert time.monotonic() - began_s < READ_AGAIN_S
    check_nothing_left(fleet)
