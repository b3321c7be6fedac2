from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import enumerate as threads_alive
from typing import Any

import pytest

from cordwood import Client, JobFailed, Result
from tests.clients import KINDS, opened
from tests.finishing import HandWorker
from tests.waiting import wait_until


@pytest.fixture(params=KINDS)
def client(request: pytest.FixtureRequest, redis_url: str) -> Iterator[Client]:
    """Either client."""
    with opened(request.param, redis_url) as made:
        yield made


@pytest.fixture
def worker(redis_url: str) -> Iterator[HandWorker]:
    """A worker by hand."""
    with HandWorker(redis_url) as made:
        yield made


def server_ms(worker: HandWorker) -> int:
    """The server's time."""
    moment: Any = worker.redis.time()
    return int(moment[0]) * 1000 + int(moment[1]) // 1000


def finish_one_by_one(worker: HandWorker, attempts: list[Any]) -> list[str]:
    """End each job in a millisecond of its own, every fifth as failed; return the IDs in that order."""
    for number, attempt in enumerate(attempts):
        now_ms = server_ms(worker)
        wait_until(lambda: server_ms(worker) > now_ms, description="the clock has moved")  # noqa: B023 - called here
        (worker.fail if number % 5 == 4 else worker.finish)([attempt])
    return [attempt.job_id for attempt in attempts]


def scrambled(attempts: list[Any]) -> list[Any]:
    """The same in an order that is neither the caller's nor the entries'."""
    return sorted(attempts, key=lambda attempt: attempt.job_id[::-1])


def test_jobs_that_ended_before_come_in_the_order_of_their_ends(client: Client, worker: HandWorker) -> None:
    """And each exactly once, failures among them."""
    job_ids = client.submit_many(["x"] * 10)
    order = finish_one_by_one(worker, scrambled(worker.take_exactly(10)))
    outcomes = list(client.as_completed(job_ids, timeout_s=10))
    assert [outcome.job_id for outcome in outcomes] == order
    assert [type(outcome) for outcome in outcomes].count(JobFailed) == 2


def test_jobs_come_as_they_end(client: Client, worker: HandWorker) -> None:
    """Each is there before the next one has ended."""
    job_ids = client.submit_many(["x"] * 10)
    attempts = scrambled(worker.take_exactly(10))
    outcomes = client.as_completed(job_ids, timeout_s=20)
    with ThreadPoolExecutor(1) as pool:
        for attempt in attempts:
            following = pool.submit(next, outcomes)
            worker.finish([attempt])
            assert following.result(10).job_id == attempt.job_id
        assert list(outcomes) == []


def test_an_iteration_left_half_way_leaves_nothing_behind(redis_url: str, worker: HandWorker) -> None:
    """No open ticket, and with nobody waiting the reading thread ends; the jobs are unharmed."""
    with opened("blocking", redis_url) as client:
        job_ids = client.submit_many(["x"] * 3)
        attempts = worker.take_exactly(3)
        worker.finish(attempts[:1])
        for outcome in client.as_completed(job_ids, timeout_s=10):
            assert isinstance(outcome, Result)
            break
        assert client._core.table(worker.keys).is_idle
        wait_until(
            lambda: not any(thread.name == "cordwood-done" for thread in threads_alive()),
            description="the reading thread has ended",
        )
        worker.finish(attempts[1:])
        assert len(client.wait_many(job_ids, timeout_s=10)) == 3


def test_an_iteration_that_is_never_begun_waits_for_nothing(redis_url: str, worker: HandWorker) -> None:
    """The time runs from the first value asked for."""
    with opened("blocking", redis_url) as client:
        job_id = client.submit("x")
        outcomes = client.as_completed([job_id], timeout_s=0.0)
        assert client._core.table(worker.keys).is_idle
        worker.finish(worker.take_exactly(1))
        assert [outcome.job_id for outcome in outcomes] == [job_id]
