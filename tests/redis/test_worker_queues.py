"""Several queues in one worker: the trouble of one is not the others'."""

from __future__ import annotations

from typing import Any

import pytest

from cordwood.inspection import look_at_workers
from cordwood.keys import queue_keys
from cordwood.result import Result
from cordwood_worker.exit_codes import ExitCode
from tests.fleet import PATIENT, Fleet
from tests.waiting import wait_until

OTHER = queue_keys("other")


@pytest.fixture
def both(fleet: Fleet) -> Fleet:
    """A fleet whose workers serve two queues."""
    fleet.configure({**PATIENT, "max_wait_ms": 0}, others={"other": {}})
    return fleet


def do_jobs(fleet: Fleet, queue: str | None = None) -> None:
    """Submit some jobs and wait for their results."""
    outcomes: Any = fleet.client.wait_many(fleet.client.submit_many(["x"] * 20, queue=queue), queue=queue, timeout_s=30)
    assert all(isinstance(outcome, Result) for outcome in outcomes)


def test_a_queue_that_cannot_be_registered_keeps_no_other_from_being_served(both: Fleet) -> None:
    """It is tried again and again, and served as soon as that can be."""
    both.redis.set(OTHER.lane("low"), "not a stream")
    worker = both.start()[0]
    do_jobs(both)
    worker.wait_for_log("queue other is not registered yet")
    both.redis.delete(OTHER.lane("low"))
    do_jobs(both, "other")
    assert len(look_at_workers(both.redis, OTHER)) == 1


def test_a_burst_ends_though_one_of_the_queues_is_paused(both: Fleet) -> None:
    """What waits there is not fetched, and stays."""
    both.redis.hset(OTHER.named("meta"), "paused", "1")
    waiting = both.client.submit("x", queue="other")
    ids = both.client.submit_many(["x"] * 20)
    worker = both.spawn("--burst")
    assert worker.exit_code() == ExitCode.CLEAN
    assert all(isinstance(both.client.result(job_id), Result) for job_id in ids)
    assert both.client.cancel(waiting, queue="other") == {waiting: "cancelled"}


def test_lanes_that_are_deleted_under_one_queue_come_back_and_the_other_goes_on(both: Fleet) -> None:
    """Streams and groups are made again, and the jobs repaired."""
    both.start()
    do_jobs(both, "other")
    both.redis.delete(*map(OTHER.lane, ("again", "high", "normal", "low")))
    do_jobs(both)
    do_jobs(both, "other")


@pytest.mark.leaves_jobs
def test_tags_that_cannot_be_read_keep_nobody_from_the_lanes(fleet: Fleet) -> None:
    """Tenants' jobs stay aside, with a warning; once the key is mended they go on."""
    ids = fleet.client.submit_many(["x"] * 100, tenant="a")
    fleet.redis.set(fleet.keys.named("vt"), "not a hash")
    worker = fleet.start()[0]
    worker.wait_for_log("tenants' jobs stay aside")
    wait_until(lambda: not fleet.lengths(), description="all that is in the lanes is done")
    fleet.redis.delete(fleet.keys.named("vt"))
    assert all(isinstance(outcome, Result) for outcome in fleet.client.wait_many(ids, timeout_s=30))
