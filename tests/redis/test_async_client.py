import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest

from cordwood import AsyncClient, CordwoodError, Result, ServerUnavailable, WaitTimeout
from cordwood.settings import Settings
from cordwood_worker.testing import fault_vector
from tests.finishing import HandWorker
from tests.private_server import frozen, private_server
from tests.waiting import wait_until


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[AsyncClient]:
    """A client in the test's own loop."""
    async with AsyncClient(redis_url, settings=Settings()) as made:
        yield made


@pytest.fixture
def worker(redis_url: str) -> Iterator[HandWorker]:
    """A worker by hand."""
    with HandWorker(redis_url) as made:
        wait_until(lambda: readers(made) == 0, description="clients of earlier tests have stopped reading")
        yield made


def readers(worker: HandWorker) -> int:
    """How many connections read a `done` stream just now."""
    clients: Any = worker.redis.client_list()
    return sum(client["cmd"] == "xread" and "b" in client["flags"] for client in clients)


async def until_listening(worker: HandWorker) -> None:
    """Let the loop run until the client listens."""
    await asyncio.to_thread(wait_until, lambda: readers(worker) == 1, description="the client listens")


async def test_200_waits_at_once_share_one_reading_connection(client: AsyncClient, worker: HandWorker) -> None:
    """Each gets its own result, and no more connections than the pools have are used for the looks."""
    texts = [f"text {number}" for number in range(200)]
    job_ids = await client.submit_many(texts)
    attempts = worker.take_exactly(200)
    waits = [asyncio.create_task(client.wait(job_id, timeout_s=30)) for job_id in job_ids]
    await until_listening(worker)
    connections: Any = worker.redis.client_list()
    assert len(connections) <= 70
    for attempt in reversed(attempts):
        worker.finish([attempt])
    results = await asyncio.gather(*waits)
    assert readers(worker) <= 1
    for text, result in zip(texts, results, strict=True):
        np.testing.assert_array_equal(result.vector, fault_vector(text))


async def test_c32_a_wait_without_a_timeout_ends_with_its_task(client: AsyncClient, worker: HandWorker) -> None:
    """Cancelled, or by `asyncio.timeout`: it leaves no ticket, the others' waits go on, the job is not touched."""
    job_id = await client.submit("a")
    waits = [asyncio.create_task(client.wait(job_id)) for _ in range(3)]
    await until_listening(worker)
    waits[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await waits[0]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await client.wait(job_id)
    assert (await client.get(job_id)).state == "queued"
    worker.finish(worker.take_exactly(1))
    assert [(await wait).job_id for wait in waits[1:]] == [job_id, job_id]
    assert client._core.table(worker.keys).is_idle


async def test_a_wait_that_is_cancelled_before_it_listens_takes_nothing_from_the_others(
    client: AsyncClient, worker: HandWorker
) -> None:
    """All of them wait for the same reader to begin."""
    job_id = await client.submit("a")
    waits = [asyncio.create_task(client.wait(job_id, timeout_s=20)) for _ in range(5)]
    await asyncio.sleep(0)
    for wait in waits[:2]:
        wait.cancel()
    worker.finish(worker.take_exactly(1))
    outcomes = await asyncio.gather(*waits, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError] * 2 + [Result] * 3
    assert client._core.table(worker.keys).is_idle


async def test_an_iteration_left_half_way_leaves_nothing_behind(client: AsyncClient, worker: HandWorker) -> None:
    """No open ticket, and with nobody waiting the reading task ends."""
    job_ids = await client.submit_many(["x"] * 3)
    worker.finish(worker.take_exactly(3)[:1])
    outcomes = client.as_completed(job_ids, timeout_s=10)
    assert isinstance(await anext(outcomes), Result)
    await outcomes.aclose()
    assert client._core.table(worker.keys).is_idle
    reading = [task for task in asyncio.all_tasks() if task.get_name() == "cordwood-done"]
    assert len(reading) == 1
    await asyncio.wait_for(reading[0], 10)
    await client.cancel(job_ids)


async def test_a_closed_client_ends_the_waits_of_other_tasks(client: AsyncClient, worker: HandWorker) -> None:
    """At once, and it is not used again; closing twice is harmless."""
    job_id = await client.submit("a")
    waits = [asyncio.create_task(client.wait(job_id)) for _ in range(3)]
    await until_listening(worker)
    began = time.monotonic()
    await client.close()
    outcomes = await asyncio.gather(*waits, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {CordwoodError}
    assert time.monotonic() - began < 1
    with pytest.raises(CordwoodError, match="the client was closed"):
        await client.submit("a")
    await client.close()
    worker.finish(worker.take_exactly(1))


async def test_a_client_closed_before_its_reader_began_lets_nobody_hang(client: AsyncClient) -> None:
    """Waits that have only just begun end too."""
    waits = [asyncio.create_task(client.wait("a")) for _ in range(3)]
    await asyncio.sleep(0)
    await client.close()
    outcomes = await asyncio.gather(*waits, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {CordwoodError}


async def test_c32_a_result_stored_shortly_before_the_deadline_is_never_a_timeout(
    client: AsyncClient, worker: HandWorker
) -> None:
    """200 jobs end 50 ms before the deadline of their wait; only what was stored too late may time out."""
    timeout_s, lead_s, repeats = 0.6, 0.05, 200
    stored_s: dict[str, float] = {}
    deadlines_s: dict[str, float] = {}
    job_ids = await client.submit_many(["x"] * repeats)
    attempts = {attempt.job_id: attempt for attempt in worker.take_exactly(repeats)}
    begin_s = time.monotonic() + 0.3

    async def wait(number: int) -> bool:
        job_id = job_ids[number]
        await asyncio.sleep(begin_s + 0.01 * number - time.monotonic())
        deadlines_s[job_id] = time.monotonic() + timeout_s
        try:
            return (await client.wait(job_id, timeout_s=timeout_s)).job_id == job_id
        except WaitTimeout:
            return stored_s.get(job_id, float("inf")) > deadlines_s[job_id] - 0.1

    async def finish() -> None:
        for number, job_id in enumerate(job_ids):
            await asyncio.sleep(begin_s + 0.01 * number + timeout_s - lead_s - time.monotonic())
            await asyncio.to_thread(worker.finish, [attempts[job_id]])
            stored_s[job_id] = time.monotonic()

    *kept, _ = await asyncio.gather(*(wait(number) for number in range(repeats)), finish())
    assert all(kept)
    assert sum(stored_s[job_id] < deadlines_s[job_id] for job_id in job_ids) > repeats / 2


async def test_a_cancelled_wait_ends_wherever_it_is(redis_url: str, worker: HandWorker) -> None:
    """Cancelled after every possible number of turns of the loop, while it connects, asks, and parks."""
    job_id = worker.keys.queue
    for turns in range(60):
        async with AsyncClient(redis_url, settings=Settings()) as client:
            await client.submit("a", job_id=job_id)
            wait = asyncio.create_task(client.wait(job_id))
            for _ in range(turns):
                await asyncio.sleep(0)
            wait.cancel()
            done, _ = await asyncio.wait([wait], timeout=5)
            assert done, f"cancelled after {turns} turns, it goes on"
            assert wait.cancelled()
            assert client._core.table(worker.keys).is_idle
    worker.finish(worker.take_exactly(1))


async def test_c32_hundreds_of_waits_keep_their_timeout_with_a_server_that_freezes() -> None:
    """None waits in line for the timeouts of the others."""
    with private_server() as server:
        async with AsyncClient(server.url, settings=Settings()) as client:
            job_ids = await client.submit_many(["a"] * 300)
            waits = [asyncio.create_task(client.wait(job_id, timeout_s=1.5)) for job_id in job_ids]
            with HandWorker(server.url) as worker:
                await until_listening(worker)
            with frozen(server):
                began = time.monotonic()
                outcomes = await asyncio.gather(*waits, return_exceptions=True)
                assert time.monotonic() - began < 5
    assert {type(outcome) for outcome in outcomes} <= {WaitTimeout, ServerUnavailable}
