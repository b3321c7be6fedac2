from collections.abc import Iterator
from typing import Any

import pytest

from cordwood import Client, CordwoodError, Job, codec
from cordwood.inspection import (
    COUNTERS,
    LaneView,
    look_at_job,
    look_at_queue,
    look_at_workers,
    queue_names,
    queue_stats,
)
from cordwood.keys import ALL_LANES, GROUP, queue_keys
from tests.clients import opened
from tests.finishing import HandWorker


@pytest.fixture
def client(redis_url: str) -> Iterator[Client]:
    """A client."""
    with opened("blocking", redis_url) as made:
        yield made


@pytest.fixture
def worker(redis_url: str) -> Iterator[HandWorker]:
    """A worker by hand."""
    with HandWorker(redis_url) as made:
        yield made


def contents(redis: Any) -> dict[bytes, tuple[Any, int]]:
    """Every key's value and whether it has a TTL."""
    return {key: (redis.dump(key), redis.expiretime(key)) for key in redis.scan_iter()}


def look_at_everything(redis: Any, queue: str, job_ids: list[str]) -> None:
    """Call every function of the module."""
    keys = queue_keys(queue)
    queue_names(redis)
    queue_stats(redis, keys)
    look_at_queue(redis, keys)
    look_at_workers(redis, keys)
    for job_id in job_ids:
        look_at_job(redis, keys, job_id)


@pytest.mark.leaves_jobs
def test_looking_changes_nothing(client: Client, worker: HandWorker) -> None:
    """Invariant 8: every key is the same before and after, also jobs that are overdue, due or without a worker."""
    worker.beat()
    jobs = [Job(inputs=(name,), id=name) for name in ("done", "failed", "dead", "running", "queued")]
    job_ids = client.submit_many(jobs)
    by_id = {attempt.job_id: attempt for attempt in worker.take_exactly(5)}
    job_ids += [client.submit("overdue", expires_s=0.001), client.submit("due", delay_s=0.001)]
    worker.finish([by_id["done"]])
    worker.fail([by_id["failed"]])
    worker.bury([by_id["dead"]])
    worker.retry([by_id["queued"]], delay_ms=0)
    before = contents(worker.redis)
    look_at_everything(worker.redis, "embed", [*job_ids, "unknown"])
    for queue in ("embed", "never-used"):
        look_at_everything(worker.redis, queue, ["unknown"])
    assert contents(worker.redis) == before


def test_looking_at_an_empty_server_creates_nothing(client: Client, worker: HandWorker) -> None:
    """No key, no group, no consumer."""
    del client
    worker.redis.flushall()
    look_at_everything(worker.redis, "embed", ["unknown"])
    assert list(worker.redis.scan_iter()) == []


def test_a_queue_that_was_never_used_is_empty(worker: HandWorker) -> None:
    """Every number is there, and 0."""
    view = look_at_queue(worker.redis, queue_keys("never-used"))
    assert (view.ready, view.in_flight, view.delayed, view.dead, view.oldest_age_ms, view.workers) == (0,) * 6
    assert (view.paused, view.model, view.task) == (False, "", "")
    assert view.lanes == tuple(LaneView(lane=lane, ready=0, in_flight=0) for lane in ALL_LANES)
    assert view.stats == dict.fromkeys(COUNTERS, 0)


def test_a_waiting_job_counts_without_any_group(client: Client, worker: HandWorker) -> None:
    """Before the first worker there is no group, and a job that waits must not look like an empty queue."""
    worker.redis.flushall()
    client.submit("a", lane="high")
    view = look_at_queue(worker.redis, worker.keys)
    assert (view.ready, view.in_flight) == (1, 0)
    worker.lanes.create_groups()
    view = look_at_queue(worker.redis, worker.keys)
    assert (view.ready, view.in_flight, view.lanes[1]) == (1, 0, LaneView(lane="high", ready=1, in_flight=0))
    worker.finish(worker.take_exactly(1))


@pytest.mark.leaves_jobs
def test_the_backlog_is_honest_after_an_entry_was_deleted(client: Client, worker: HandWorker) -> None:
    """Five jobs, one read, one of the unread deleted: the group's own lag is unknown then, ours is three."""
    client.submit_many(["x"] * 5)
    lane = worker.keys.lane("normal")
    entries: Any = worker.redis.xrange(lane)
    worker.redis.xreadgroup(GROUP, "someone", {lane: ">"}, count=1)
    worker.redis.xdel(lane, entries[2][0])
    groups: Any = worker.redis.xinfo_groups(lane)
    assert groups[0]["lag"] is None
    view = look_at_queue(worker.redis, worker.keys)
    assert (view.ready, view.in_flight) == (3, 1)
    worker.redis.xdel(lane, entries[0][0])
    assert look_at_queue(worker.redis, worker.keys).ready >= 0


def test_jobs_that_wait_for_their_tenants_turn_are_shown_and_count_as_ready(client: Client, worker: HandWorker) -> None:
    """In the lane's window or aside, they wait for a worker; a job's tenant is in its record."""
    ids = client.submit_many([f"text {number}" for number in range(100)], lane="low", tenant="acme")
    view = look_at_queue(worker.redis, worker.keys)
    low = view.lanes[-1]
    assert (view.ready, low.ready + low.aside, view.in_flight) == (100, 100, 0)
    assert 0 < low.aside < 100
    record = look_at_job(worker.redis, worker.keys, ids[0])
    assert record is not None
    assert record.tenant == "acme"
    client.cancel(ids)
    assert look_at_queue(worker.redis, worker.keys).ready == 0


def test_what_waits_runs_is_delayed_and_is_dead_is_counted(client: Client, worker: HandWorker) -> None:
    """With the age of the oldest, the counters, and what serves the queue."""
    worker.upkeep.announce({"task": "embed", "model": "hand", "dim": 8})
    worker.beat()
    ids = client.submit_many(["x"] * 4)
    dead, done, running = worker.take_exactly(4)[:3]
    worker.bury([dead])
    worker.finish([done])
    client.cancel(ids[3])
    delayed = client.submit("later", delay_s=1000)
    waiting = client.submit("now", lane="low")
    view = look_at_queue(worker.redis, worker.keys)
    assert (view.ready, view.in_flight, view.delayed, view.dead, view.workers) == (1, 1, 1, 1, 1)
    assert (view.task, view.model, view.paused) == ("embed", "hand", False)
    assert 0 <= view.oldest_age_ms < 60_000
    counted = {name: value for name, value in view.stats.items() if value}
    assert counted == {"submitted": 6, "done": 1, "dead": 1, "cancelled": 1}
    assert queue_stats(worker.redis, worker.keys) == view.stats
    worker.redis.hset(worker.keys.named("meta"), "paused", "1")
    assert look_at_queue(worker.redis, worker.keys).paused
    worker.finish([running])
    client.cancel([delayed, waiting])


def test_only_names_that_a_queue_can_have_are_listed(client: Client, worker: HandWorker) -> None:
    """Whoever wrote the others there: they must not break the list."""
    client.submit_many([], queue="nothing-was-ever-submitted")
    for name in ("b", "a"):
        client.cancel(client.submit("x", queue=name), queue=name)
    worker.redis.sadd("cw:queues", "two words", "*", "{a}", b"\xff\xfe", "")
    assert queue_names(worker.redis) == ["a", "b"]


def test_a_key_of_another_type_is_an_error_that_names_it(worker: HandWorker) -> None:
    """Not a number that is wrong."""
    worker.redis.delete(worker.keys.lane("high"))
    worker.redis.set(worker.keys.lane("high"), "text", ex=60)
    with pytest.raises(CordwoodError, match="lane:high"):
        look_at_queue(worker.redis, worker.keys)
    worker.redis.set(worker.keys.job("mine"), "text", ex=60)
    with pytest.raises(CordwoodError, match="job:mine"):
        look_at_job(worker.redis, worker.keys, "mine")


def test_a_job_is_shown_with_the_size_of_its_payload_and_nothing_of_it(client: Client, worker: HandWorker) -> None:
    """Until it has ended well; a job that is not there is None."""
    job_id = client.submit("some text", metadata={"a": 1})
    record = look_at_job(worker.redis, worker.keys, job_id)
    assert record is not None
    assert (record.state, record.lane, record.attempts) == ("queued", "normal", 0)
    assert 10 < record.payload_bytes < 100
    assert "some text" not in repr(record)
    worker.finish(worker.take_exactly(1))
    ended = look_at_job(worker.redis, worker.keys, job_id)
    assert ended is not None
    assert (ended.state, ended.payload_bytes, ended.worker) == ("done", 0, worker.consumer)
    assert look_at_job(worker.redis, worker.keys, "unknown") is None


def test_workers_are_shown_whatever_they_say_of_themselves(worker: HandWorker) -> None:
    """The one that showed itself last comes first; unreadable words are shown as none."""
    worker.redis.zadd(worker.keys.named("workers"), {"odd": 1})
    worker.redis.hset(worker.keys.named("info"), "odd", b"\xc1 not msgpack")
    worker.upkeep.beat(codec.pack({"model": "m", "held": 3}, max_bytes=1000))
    first, second = look_at_workers(worker.redis, worker.keys)
    assert (first.consumer, first.info) == (worker.consumer, {"model": "m", "held": 3})
    assert 0 <= first.age_ms < 60_000
    assert (second.consumer, second.info) == ("odd", {})
    assert second.age_ms > 1e12
