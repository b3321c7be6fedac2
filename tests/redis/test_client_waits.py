"""C32: a wait ends in what has become of the job, soon, whatever happens to the server meanwhile."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis

from cordwood import Client, JobNotFound, Result, WaitTimeout
from cordwood.calls import record_keys
from cordwood.embedded import EmbeddedServer
from cordwood.result import MIN_RECORD_TTL_MS
from cordwood.scripts import script
from cordwood_worker.entry import Attempt
from tests.clients import KINDS, opened
from tests.finishing import HandWorker
from tests.private_server import frozen, private_server
from tests.waiting import wait_until

EVERY_SHARD = 255
SOON_S = 3.0
"""Well below the time after which a wait that hears nothing looks by itself."""


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Which client."""
    name: str = request.param
    return name


@pytest.fixture
def client(kind: str, redis_url: str) -> Iterator[Client]:
    """Either client."""
    with opened(kind, redis_url) as made:
        yield made


@pytest.fixture
def worker(redis_url: str) -> Iterator[HandWorker]:
    """A worker by hand."""
    with HandWorker(redis_url) as made:
        yield made


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Threads in which a wait goes on while the test acts."""
    with ThreadPoolExecutor(4) as made:
        yield made


def until_listening(server: redis.Redis) -> None:
    """Wait until some client reads a `done` stream."""

    def reads() -> bool:
        clients: Any = server.client_list()
        return any(client["cmd"] == "xread" and "b" in client["flags"] for client in clients)

    wait_until(reads, description="a client listens")


def waiter_mask(worker: HandWorker, job_id: str) -> int:
    """Which shards want to know of a job's end, as bits."""
    mask: Any = worker.redis.hget(worker.keys.job(job_id), "wm")
    return int(mask)


def finish_unheard(worker: HandWorker, attempt: Attempt) -> None:
    """End a job as done, and in the same step trim the streams that tell of it."""
    keys = record_keys(worker.keys, [attempt.job_id])
    with worker.redis.pipeline(transaction=True) as step:
        outcome = (attempt.job_id, attempt.token, worker.result(attempt))
        step.execute_command("EVAL", script("finish").text, len(keys), *keys, *outcome)
        for shard in range(8):
            step.execute_command("XTRIM", worker.keys.done(shard), "MAXLEN", 0)
        assert step.execute()[0] == [b"done"]


def test_c32_an_unknown_job_is_not_found_within_a_second(client: Client) -> None:
    """By every call: not None, not a timeout."""
    began = time.monotonic()
    for call in (client.wait, client.get):
        with pytest.raises(JobNotFound, match="never submitted, expired or wiped"):
            call("unknown")
    assert isinstance(client.wait_many(["unknown"])[0], JobNotFound)
    assert isinstance(client.result("unknown"), JobNotFound)
    assert time.monotonic() - began < 1


def test_c32_an_expired_result_is_not_found_though_its_record_stays_a_while(client: Client, worker: HandWorker) -> None:
    """A record outlives a short TTL, for late repeats of a call; what is left of its time tells that it has passed."""
    job_id = client.submit("a", result_ttl_s=2)
    worker.finish(worker.take_exactly(1))
    record = worker.keys.job(job_id)
    assert client.wait(job_id).job_id == job_id
    worker.redis.pexpire(record, MIN_RECORD_TTL_MS - 1900)
    assert client.wait(job_id).job_id == job_id
    worker.redis.pexpire(record, MIN_RECORD_TTL_MS - 4000)
    began = time.monotonic()
    with pytest.raises(JobNotFound):
        client.wait(job_id)
    with pytest.raises(JobNotFound):
        client.get(job_id)
    assert time.monotonic() - began < 1


def test_c32_a_result_that_never_expires_has_no_expiry(client: Client, worker: HandWorker) -> None:
    """A TTL of 0 means for good, in the settings and for one job; any other gives the record an end."""
    for_good, for_now = client.submit("a", result_ttl_s=0), client.submit("b")
    worker.finish(worker.take_exactly(2))
    assert worker.redis.pttl(worker.keys.job(for_good)) == -1
    assert 3_500_000 < worker.redis.pttl(worker.keys.job(for_now)) <= 3_600_000
    assert client.wait(for_good).job_id == for_good


def test_c32_a_wait_for_a_dead_workers_job_times_out_and_the_job_ends_elsewhere(
    client: Client, redis_url: str, worker: HandWorker
) -> None:
    """The timeout is kept within 500 ms and names the job; the same job is then done by who takes it over."""
    job_id = client.submit("a")
    worker.take_exactly(1)
    began = time.monotonic()
    with pytest.raises(WaitTimeout, match=job_id) as caught:
        client.wait(job_id, timeout_s=1)
    assert 1 <= time.monotonic() - began < 1.5
    assert caught.value.job_ids == (job_id,)
    with HandWorker(redis_url) as heir:
        heir.beat()
        entries = heir.upkeep.reclaim(10).entries
        heir.finish([item for item in heir.attempts.start(entries) if isinstance(item, Attempt)])
    assert client.wait(job_id, timeout_s=10).job_id == job_id


def test_c32_a_timeout_names_the_outstanding_jobs_and_the_others_are_there_at_once(
    client: Client, worker: HandWorker
) -> None:
    """Nothing is lost by a timeout."""
    job_ids = client.submit_many(["a", "b", "c"])
    taken = worker.take_exactly(3)
    worker.finish(taken[:2])
    with pytest.raises(WaitTimeout, match="1 jobs have no outcome yet") as caught:
        client.wait_many(job_ids, timeout_s=0.1)
    assert caught.value.job_ids == (job_ids[2],)
    assert len(client.wait_many(job_ids[:2], timeout_s=0)) == 2
    with pytest.raises(WaitTimeout):
        list(client.as_completed(job_ids, timeout_s=0.1))
    worker.finish(taken[2:])


def test_c32_a_timeout_of_0_looks_once(client: Client, worker: HandWorker) -> None:
    """One call for a job that has ended or not, nothing is listened to and nothing is changed."""
    job_id = client.submit("a")
    before = worker.redis.hgetall(worker.keys.job(job_id))
    worker.redis.config_resetstat()
    with pytest.raises(WaitTimeout):
        client.wait(job_id, timeout_s=0)
    stats = worker.redis.info("commandstats")
    assert stats["cmdstat_evalsha"]["calls"] + stats.get("cmdstat_eval", {"calls": 0})["calls"] <= 2
    assert not {"cmdstat_xread", "cmdstat_xrevrange", "cmdstat_hset"} & set(stats)
    assert worker.redis.hgetall(worker.keys.job(job_id)) == before
    worker.finish(worker.take_exactly(1))
    assert client.wait(job_id, timeout_s=0).job_id == job_id


def test_c32_a_wait_survives_a_frozen_server(kind: str, pool: ThreadPoolExecutor) -> None:
    """No answer for longer than a connection waits for one, and the result comes as if nothing had been."""
    with private_server() as server, opened(kind, server.url) as client, HandWorker(server.url) as worker:
        job_id = client.submit("a")
        taken = worker.take_exactly(1)
        waiting = pool.submit(client.wait, job_id, timeout_s=30)
        until_listening(worker.redis)
        with frozen(server):
            threading.Event().wait(2.5)
            assert not waiting.done()
        worker.finish(taken)
        assert waiting.result(SOON_S).job_id == job_id


def test_c32_a_wait_keeps_its_timeout_with_a_server_that_stays_frozen(kind: str, pool: ThreadPoolExecutor) -> None:
    """It ends as a timeout that says why."""
    with private_server() as server, opened(kind, server.url) as client, HandWorker(server.url) as worker:
        job_id = client.submit("a")
        worker.redis.hset(worker.keys.job(job_id), "wm", 0)
        waiting = pool.submit(client.wait, job_id, timeout_s=1)
        wait_until(lambda: waiter_mask(worker, job_id), description="the wait has asked to be told")
        with frozen(server):
            began = time.monotonic()
            with pytest.raises(WaitTimeout, match="the server does not answer"):
                waiting.result(10)
            assert time.monotonic() - began < 3.5


def test_c32_a_wait_survives_a_server_that_restarts(kind: str, pool: ThreadPoolExecutor, tmp_path: Path) -> None:
    """Its jobs are on disk, its streams are too, and the wait needs neither connection of before."""
    with (
        EmbeddedServer(tmp_path / "data", extra=("--appendfsync", "always")) as server,
        opened(kind, server.url) as client,
        HandWorker(server.url) as worker,
    ):
        job_ids = client.submit_many(["a", "b"])
        waiting = pool.submit(client.wait_many, job_ids, timeout_s=30)
        until_listening(worker.redis)
        server.stop()
        server.start()
        worker.finish(worker.take_exactly(2))
        assert [outcome.job_id for outcome in waiting.result(SOON_S)] == job_ids


def test_c32_a_wait_survives_its_connections_being_killed(
    client: Client, worker: HandWorker, pool: ThreadPoolExecutor
) -> None:
    """Again and again; what happened between two connections is not missed."""
    for _ in range(3):
        job_id = client.submit("a")
        taken = worker.take_exactly(1)
        waiting = pool.submit(client.wait, job_id, timeout_s=30)
        until_listening(worker.redis)
        worker.redis.execute_command("CLIENT", "KILL", "TYPE", "NORMAL", "SKIPME", "YES")
        worker.finish(taken)
        assert waiting.result(SOON_S).job_id == job_id


def test_a_gap_in_the_done_stream_makes_the_wait_look_at_everything(
    client: Client, worker: HandWorker, pool: ThreadPoolExecutor
) -> None:
    """The stream is capped: an entry that was trimmed unread shows by the serial number of the next one."""
    job_ids = client.submit_many(["unheard", "heard"])
    unheard, heard = worker.take_exactly(2)
    waiting = pool.submit(client.wait_many, job_ids, timeout_s=30)
    until_listening(worker.redis)
    finish_unheard(worker, unheard)
    worker.finish([heard])
    assert [type(outcome) for outcome in waiting.result(SOON_S)] == [Result, Result]


def test_c32_a_result_that_nobody_told_of_is_there_before_the_timeout_is(
    client: Client, worker: HandWorker, pool: ThreadPoolExecutor
) -> None:
    """The last look is at the deadline, not before."""
    job_id = client.submit("a")
    taken = worker.take_exactly(1)
    waiting = pool.submit(client.wait, job_id, timeout_s=1.5)
    until_listening(worker.redis)
    finish_unheard(worker, taken[0])
    assert waiting.result(SOON_S).job_id == job_id


def test_a_wait_for_wiped_jobs_ends_as_not_found(
    client: Client, worker: HandWorker, redis_url: str, pool: ThreadPoolExecutor
) -> None:
    """At the latest at its timeout, and at once when the next job ends: its serial number starts anew."""
    worker.redis.hset(worker.keys.job(client.submit("before")), "wm", EVERY_SHARD)
    worker.finish(worker.take_exactly(1))
    job_ids = client.submit_many(["a", "b"])
    soon = pool.submit(client.wait_many, job_ids, timeout_s=30)
    until_listening(worker.redis)
    worker.redis.flushall()
    worker.lanes.create_groups()
    with opened("blocking", redis_url) as other:
        job_id = other.submit("another")
        worker.redis.hset(worker.keys.job(job_id), "wm", EVERY_SHARD)
        worker.finish(worker.take_exactly(1))
        assert [type(outcome) for outcome in soon.result(SOON_S)] == [JobNotFound, JobNotFound]
        job_id = other.submit("a third")
    worker.redis.hset(worker.keys.job(job_id), "wm", 0)
    late = pool.submit(client.wait, job_id, timeout_s=1)
    wait_until(lambda: waiter_mask(worker, job_id), description="the wait has asked to be told")
    worker.redis.flushall()
    with pytest.raises(JobNotFound):
        late.result(SOON_S)


WAIT_FOR_EVER = """
import signal, sys
from cordwood import Client
from cordwood.keys import queue_keys

url, queue, job_id = sys.argv[1:]
# A suite that was started in the background inherits that Ctrl-C is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
with Client(url, queue=queue) as client:
    try:
        client.wait(job_id)
    except KeyboardInterrupt:
        print("interrupted", client._core.table(queue_keys(queue)).is_idle)
"""


def test_c32_a_wait_without_a_timeout_ends_by_ctrl_c(redis_url: str, worker: HandWorker) -> None:
    """And leaves nothing behind that would be told. In a process of its own, which nothing else has set up."""
    with opened("blocking", redis_url) as client:
        job_id = client.submit("a")
        worker.redis.hset(worker.keys.job(job_id), "wm", 0)
        arguments = [sys.executable, "-c", WAIT_FOR_EVER, redis_url, "embed", job_id]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as waiting:
            wait_until(lambda: waiter_mask(worker, job_id), description="the wait has asked to be told")
            waiting.send_signal(signal.SIGINT)
            output, _ = waiting.communicate(timeout=20)
    assert output.split() == ["interrupted", "True"]
    assert waiting.returncode == 0
    worker.finish(worker.take_exactly(1))


def test_c32_a_result_stored_shortly_before_the_deadline_is_never_a_timeout(redis_url: str, worker: HandWorker) -> None:
    """200 jobs end 50 ms before the deadline of their wait; only what was stored too late may time out."""
    timeout_s, lead_s, repeats = 0.6, 0.05, 200
    stored_s: dict[str, float] = {}
    deadlines_s: dict[str, float] = {}
    with opened("blocking", redis_url) as client, ThreadPoolExecutor(repeats + 1) as threads:
        job_ids = client.submit_many(["x"] * repeats)
        attempts = {attempt.job_id: attempt for attempt in worker.take_exactly(repeats)}

        def wait(job_id: str, start_s: float) -> bool:
            threading.Event().wait(max(0.0, start_s - time.monotonic()))
            deadlines_s[job_id] = time.monotonic() + timeout_s
            try:
                return client.wait(job_id, timeout_s=timeout_s).job_id == job_id
            except WaitTimeout:
                return stored_s.get(job_id, float("inf")) > deadlines_s[job_id] - 0.1

        begin_s = time.monotonic() + 0.3
        waits = [threads.submit(wait, job_id, begin_s + 0.01 * n) for n, job_id in enumerate(job_ids)]
        for number, job_id in enumerate(job_ids):
            end_s = begin_s + 0.01 * number + timeout_s - lead_s
            threading.Event().wait(max(0.0, end_s - time.monotonic()))
            worker.finish([attempts[job_id]])
            stored_s[job_id] = time.monotonic()
        assert all(wait.result(10) for wait in waits)
        early = [job_id for job_id in job_ids if stored_s[job_id] < deadlines_s[job_id]]
    assert len(early) > repeats / 2
