"""C29: sizes are counted in bytes of UTF-8, before anything is sent."""

import resource
import time
from collections.abc import Iterator
from typing import Any

import pytest

from cordwood import Client, Job, PayloadTooLarge, Result
from tests.clients import KINDS, opened
from tests.finishing import HandWorker

LIMIT = 1_048_576


@pytest.fixture(params=KINDS)
def client(request: pytest.FixtureRequest, redis_url: str) -> Iterator[Client]:
    """Either client, with the default limit of 1 MiB."""
    with opened(request.param, redis_url) as made:
        yield made


@pytest.fixture
def worker(redis_url: str) -> Iterator[HandWorker]:
    """A worker by hand."""
    with HandWorker(redis_url) as made:
        yield made


@pytest.mark.parametrize("letter", ["x", "\U0001f332"], ids=["ascii", "emoji"])
def test_c29_a_text_of_the_limit_is_accepted_and_one_byte_more_is_not(
    client: Client, worker: HandWorker, letter: str
) -> None:
    """Whatever the characters: a text of emoji has a quarter of them. What is accepted can be run."""
    width = len(letter.encode())
    exact = letter * (LIMIT // width)
    below = letter * (LIMIT // width - 1) + "x" * (width - 1)
    assert (len(below.encode()), len(exact.encode())) == (LIMIT - 1, LIMIT)
    job_ids = [client.submit(text) for text in (below, exact)]
    with pytest.raises(PayloadTooLarge, match=f"{LIMIT + 1} bytes, over the limit max_payload_bytes = {LIMIT}") as over:
        client.submit(exact + "x")
    assert (over.value.size, over.value.limit) == (LIMIT + 1, LIMIT)
    with pytest.raises(PayloadTooLarge) as among:
        client.submit_many(["small", exact + "x"])
    assert (among.value.index, among.value.size) == (1, LIMIT + 1)
    assert worker.redis.hget(worker.keys.named("stats"), "submitted") == b"2"
    worker.finish(worker.take_exactly(2))
    assert all(isinstance(outcome, Result) for outcome in client.wait_many(job_ids, timeout_s=10))


@pytest.fixture(scope="module")
def huge() -> str:
    """A text of 600 MiB."""
    return "x" * (600 * 1024 * 1024)


def test_c29_a_text_of_600_mib_is_refused_at_once_and_the_client_goes_on(
    client: Client, worker: HandWorker, huge: str
) -> None:
    """In under 2 s and without a copy of it, by every call that takes texts."""
    for call in (client.submit, lambda text: client.submit_many(["a", text]), lambda text: client.embed(["a", text])):
        before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.monotonic()
        with pytest.raises(PayloadTooLarge):
            call(huge)
        assert time.monotonic() - began < 2
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 1_000_000
    job_id = client.submit("small")
    worker.finish(worker.take_exactly(1))
    assert client.wait(job_id, timeout_s=10).job_id == job_id


def test_c29_a_bulk_call_of_50_large_jobs_succeeds_whole(client: Client, worker: HandWorker) -> None:
    """45 MB travel in as many requests as needed; every job keeps its own contents."""
    texts = [f"{number:02} ".ljust(900_000, "x") for number in range(50)]
    job_ids = client.submit_many(texts)
    taken = worker.take_exactly(50)
    assert [attempt.job_id for attempt in taken] == job_ids
    assert all(text.encode() in attempt.payload for text, attempt in zip(texts, taken, strict=True))
    worker.finish(taken)
    assert len(client.wait_many(job_ids, timeout_s=20)) == 50


def test_c29_metadata_over_the_limit_is_refused_alone_and_together_with_the_text(
    client: Client, worker: HandWorker
) -> None:
    """They share one limit, since they share one record."""
    with pytest.raises(PayloadTooLarge, match="metadata has at least") as alone:
        client.submit("small", metadata={"page": "x" * (LIMIT + 1)})
    assert alone.value.limit == LIMIT
    half = "x" * (LIMIT // 2)
    with pytest.raises(PayloadTooLarge, match="together"):
        client.submit(half, metadata={"page": half})
    with pytest.raises(PayloadTooLarge, match=r"257 inputs, over the limit of 256") as many:
        client.submit(Job(inputs=("x",) * 257))
    assert (many.value.size, many.value.limit) == (257, 256)
    assert worker.redis.keys("*job:*") == []


def test_c29_a_result_and_the_record_of_an_ended_job_do_not_hold_the_text(client: Client, worker: HandWorker) -> None:
    """The payload goes when the job has ended well, and nothing of it is kept elsewhere."""
    text = "a secret that is easy to find " * 10
    job_id = client.submit(text)
    worker.finish(worker.take_exactly(1))
    client.wait(job_id, timeout_s=10)
    keys = sorted(worker.redis.scan_iter())
    assert worker.keys.job(job_id).encode() in keys
    assert b"easy to find" not in b"".join(contents(worker.redis, key) for key in keys)
    assert worker.redis.hstrlen(worker.keys.job(job_id), "pl") == 0


def contents(redis: Any, key: bytes) -> bytes:
    """All that a key holds, as text."""
    readers = {b"hash": redis.hgetall, b"stream": redis.xrange, b"set": redis.smembers}
    return repr(readers[redis.type(key)](key)).encode()


@pytest.mark.parametrize("kind", KINDS)
def test_embedding_makes_no_job_that_is_over_a_small_limit(kind: str, redis_url: str, worker: HandWorker) -> None:
    """Texts that fit one by one are put together only as far as they fit together."""
    with opened(kind, redis_url, max_payload_bytes=100, max_inputs=3) as client, worker.serving():
        texts = ["x" * 60, "y" * 60, "\U0001f332" * 25, "z" * 100, *["a"] * 10]
        assert client.embed(texts, timeout_s=20).shape == (14, 8)
        with pytest.raises(PayloadTooLarge, match="text 3 has at least 101 bytes") as caught:
            client.embed(["a", "b", "c", "z" * 101])
        assert (caught.value.index, caught.value.size, caught.value.limit) == (3, 101, 100)
