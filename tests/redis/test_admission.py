"""Deadlines that cannot be met are refused, by what is on the server and what workers said of themselves."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any

import pytest

from cordwood import AsyncClient, Client, DeadlineUnmeetable, Job
from cordwood.inspection import look_at_queue, queue_stats
from cordwood.settings import Settings
from tests.finishing import HandWorker

pytestmark = pytest.mark.leaves_jobs

INFO: dict[str, Any] = {
    "tokens_per_s": 100.0,
    "tokens_per_job": 10.0,
    "tokens_per_hint": 1.0,
    "cost": {"token_s": 0.01, "row_s": 0.0, "square_s": 0.0, "batch_s": 0.5},
    "lane_weights": "6:3:1",
}


@pytest.fixture
def client(redis_url: str) -> Iterator[Client]:
    """A client on the emptied server."""
    with Client(redis_url, settings=Settings()) as made:
        yield made


@pytest.fixture
def worker(redis_url: str) -> Iterator[HandWorker]:
    """A worker that computes ten jobs of the usual length a second, and half a second for a batch."""
    with HandWorker(redis_url) as made:
        made.beat(**INFO)
        yield made


def refused(client: Client, worker: HandWorker, *texts: str, **options: Any) -> DeadlineUnmeetable:
    """Submit and return the refusal, having checked that nothing was accepted."""
    before = queue_stats(worker.redis, worker.keys)
    with pytest.raises(DeadlineUnmeetable) as caught:
        client.submit_many(texts or ["x"], admission_control=True, **options)
    assert queue_stats(worker.redis, worker.keys) == before
    return caught.value


def fill(client: Client, count: int, **options: Any) -> None:
    """Submit a backlog."""
    client.submit_many(["x" * 40] * count, **options)


def test_a_deadline_that_can_be_met_is_accepted(client: Client, worker: HandWorker) -> None:
    """With nothing before it, a job takes its own batch: 0.51 s."""
    client.submit("x", deadline_s=0.6, admission_control=True)
    client.submit_many(["x"], deadline_s=0.6 + 0.1, admission_control=True)
    worker.redis.flushdb()
    worker.beat(**INFO)
    error = refused(client, worker, deadline_s=0.4)
    assert error.expected_s == pytest.approx(0.51)
    assert (error.deadline_s, error.index) == (0.4, 0)
    assert "0.51 s" in str(error)


def test_without_being_asked_nothing_is_refused(client: Client, worker: HandWorker) -> None:
    """And a job without a deadline has none to miss."""
    del worker
    client.submit("x", deadline_s=0.01)
    client.submit("x", admission_control=True)


def test_what_is_before_it_counts_by_lane(client: Client, worker: HandWorker) -> None:
    """100 normal jobs take ten seconds alone; a high job passes most of them."""
    fill(client, 100)
    assert refused(client, worker, deadline_s=9.0).expected_s == pytest.approx(10.51)
    assert refused(client, worker, deadline_s=0.4, lane="high").expected_s == pytest.approx(0.51)
    client.submit("x", deadline_s=11.0, admission_control=True)
    client.submit("x", deadline_s=0.7, lane="high", admission_control=True)


def test_a_call_counts_its_own_jobs_and_names_the_first_that_is_late(client: Client, worker: HandWorker) -> None:
    """Of jobs of a second each, the third is done after 3.5 s."""
    error = refused(client, worker, *["x" * 400] * 5, deadline_s=3.0)
    assert error.index == 2
    assert error.expected_s == pytest.approx(3.5)
    assert "(job 2)" in str(error)


def test_a_tenants_job_counts_what_has_its_turn_before_it(client: Client, worker: HandWorker) -> None:
    """Another tenant's flood counts with its window alone."""
    fill(client, 500, tenant="flood")
    few = refused(client, worker, deadline_s=1.0, tenant="few").expected_s
    flood = refused(client, worker, deadline_s=1.0, tenant="flood").expected_s
    assert 6.0 < few < 7.5
    assert flood == pytest.approx(50.51, abs=0.5)


def test_of_a_call_only_what_has_its_turn_before_a_job_counts(client: Client, worker: HandWorker) -> None:
    """Neither another tenant's jobs nor those that are to wait for an hour."""
    flood = [Job(inputs=("x" * 40,), tenant="flood") for _ in range(200)]
    later = [Job(inputs=("x" * 40,), delay_s=3600.0) for _ in range(200)]
    client.submit_many([*flood, Job(inputs=("x",), tenant="few", deadline_s=1.0)], admission_control=True)
    worker.redis.flushdb()
    worker.beat(**INFO)
    client.submit_many([*later, Job(inputs=("x",), deadline_s=1.0)], admission_control=True)


def test_a_job_that_was_accepted_may_be_submitted_again(client: Client, worker: HandWorker) -> None:
    """However full the queue is by then: it is the same job."""
    client.submit("mine", job_id="mine", deadline_s=1.0, admission_control=True)
    fill(client, 100)
    assert client.submit("mine", job_id="mine", deadline_s=1.0, admission_control=True) == "mine"
    assert refused(client, worker, "other", deadline_s=1.0).expected_s > 10


def test_garbage_in_the_tags_is_no_tag(client: Client, worker: HandWorker) -> None:
    """Whoever wrote it."""
    worker.redis.hset(worker.keys.named("vt"), mapping={"normal": "9" * 5000, "normal:": "x"})
    client.submit("x", deadline_s=1.0, admission_control=True)


def test_without_workers_or_paused_no_deadline_can_be_met(client: Client, worker: HandWorker) -> None:
    """A worker whose last sign is too old counts as gone."""
    worker.redis.hset(worker.keys.named("meta"), "paused", "1")
    assert "is paused" in str(refused(client, worker, deadline_s=1000.0))
    worker.redis.hdel(worker.keys.named("meta"), "paused")
    worker.redis.zadd(worker.keys.named("workers"), {worker.consumer: 1.0})
    error = refused(client, worker, deadline_s=1000.0)
    assert (error.expected_s, "no worker serves queue embed" in str(error)) == (inf, True)


def test_workers_that_have_learned_nothing_refuse_nothing(client: Client, worker: HandWorker) -> None:
    """Nobody knows, so nobody says no."""
    worker.beat()
    fill(client, 100)
    client.submit("x", deadline_s=0.001, admission_control=True)


async def test_the_asyncio_client_refuses_the_same(redis_url: str, worker: HandWorker) -> None:
    """One job or many."""
    del worker
    async with AsyncClient(redis_url, settings=Settings()) as client:
        with pytest.raises(DeadlineUnmeetable):
            await client.submit("x", deadline_s=0.1, admission_control=True)
        with pytest.raises(DeadlineUnmeetable):
            await client.submit_many(["x"], deadline_s=0.1, admission_control=True)


def test_a_queue_shows_how_long_its_backlog_takes(client: Client, worker: HandWorker) -> None:
    """By all its workers; unknown without any that has learned."""
    assert look_at_queue(worker.redis, worker.keys).drain_s == 0.0
    fill(client, 100)
    assert look_at_queue(worker.redis, worker.keys).drain_s == pytest.approx(10.0)
    worker.beat()
    assert look_at_queue(worker.redis, worker.keys).drain_s is None
