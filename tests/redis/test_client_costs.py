from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from cordwood import Client
from tests.clients import KINDS, opened
from tests.finishing import HandWorker
from tests.private_server import private_server
from tests.waiting import wait_until


@pytest.fixture(params=KINDS)
def setting(request: pytest.FixtureRequest) -> Iterator[tuple[Client, HandWorker]]:
    """Either client, and a worker, on a server that nobody else talks to."""
    with private_server() as server, opened(request.param, server.url) as client, HandWorker(server.url) as worker:
        yield client, worker


def calls(worker: HandWorker) -> dict[str, int]:
    """How often each command came from outside since the last reset; scripts are `script` in whatever form."""
    stats: dict[str, Any] = worker.redis.info("commandstats")
    counted = {name.removeprefix("cmdstat_"): stat["calls"] for name, stat in stats.items()}
    counted["script"] = counted.get("evalsha", 0) + counted.get("eval", 0)
    return counted


def until_all_are_asked_for(worker: HandWorker) -> None:
    """Wait until a client has looked at every job and parked."""

    def parked() -> bool:
        clients: Any = worker.redis.client_list()
        asked = {client["cmd"] for client in clients if "b" in client["flags"]}
        return asked == {"xread"} and calls(worker).get("hmget", 0) >= 1000

    wait_until(parked, description="the wait is parked")


def test_waiting_for_1000_jobs_that_end_in_10_batches_costs_a_few_calls_a_batch(
    setting: tuple[Client, HandWorker],
) -> None:
    """Each batch is one entry read and one look at its jobs; nothing is asked of each job, nothing while silent."""
    client, worker = setting
    job_ids = client.submit_many(["x"] * 1000)
    attempts = worker.take_exactly(1000)
    worker.redis.config_resetstat()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.wait_many, job_ids, timeout_s=60)
        until_all_are_asked_for(worker)
        first_look = calls(worker)
        assert first_look["script"] <= 10
        worker.redis.config_resetstat()
        ended = 0
        for start in range(0, 1000, 100):
            worker.finish(attempts[start : start + 100])
            ended += 100
            if start < 900:
                wait_until(lambda: calls(worker).get("pttl", 0) >= ended, description="the batch is seen")  # noqa: B023
        assert len(waiting.result(20)) == 1000
    counted = calls(worker)
    assert counted["script"] - 10 <= 20
    assert counted["xread"] <= 15
    assert counted["pttl"] <= 1100


def test_a_silent_wait_asks_for_nothing_but_news(setting: tuple[Client, HandWorker]) -> None:
    """For a second and a half nothing ends: one blocked read a second, and not one look at a job."""
    client, worker = setting
    job_ids = client.submit_many(["x"] * 1000)
    with ThreadPoolExecutor(1) as pool:
        worker.redis.config_resetstat()
        waiting = pool.submit(client.wait_many, job_ids, timeout_s=60)
        until_all_are_asked_for(worker)
        worker.redis.config_resetstat()
        wait_until(lambda: calls(worker).get("xread", 0) >= 1, description="a second has passed")
        assert calls(worker)["script"] == 0
        with worker.serving():
            waiting.result(20)


def test_a_submit_of_1000_jobs_is_a_few_calls(setting: tuple[Client, HandWorker]) -> None:
    """And the queue's name is written once for each client."""
    client, worker = setting
    worker.redis.config_resetstat()
    for _ in range(2):
        client.submit_many(["x"] * 1000)
    counted = calls(worker)
    assert counted["script"] <= 5
    assert counted["sadd"] == 1
