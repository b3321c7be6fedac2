"""Every typed error, raised by what it stands for."""

import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from cordwood import (
    Client,
    InvalidInput,
    Job,
    JobCancelled,
    JobConflict,
    JobDead,
    JobError,
    JobExpired,
    JobFailed,
    JobNotFound,
    QueueFull,
    Result,
    ServerFull,
    ServerUnavailable,
    SpecMismatch,
    WaitTimeout,
)
from cordwood.result import SPEC_MISMATCH
from cordwood.scripts import MAX_JOBS_PER_CALL
from tests.clients import KINDS, opened
from tests.finishing import HandWorker
from tests.private_server import connected, private_server


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


def fill_to(redis: Any, share: float) -> None:
    """Use this share of the server's memory."""
    for number in count():
        memory = redis.info("memory")
        if memory["used_memory"] > share * memory["maxmemory"]:
            return
        redis.set(f"filler {number}", b"x" * 200_000)


def test_a_bad_job_of_many_is_named_and_nothing_is_sent(client: Client, worker: HandWorker) -> None:
    """The index is that of the job, also where there is only one; a single submit has none."""
    bad: list[Any] = ["\ud800", "", Job(inputs=()), Job(inputs=("a",), lane="fast"), ["a", 5], 7]
    for work in [bad[0], *bad[2:]]:
        with pytest.raises(InvalidInput) as caught:
            client.submit_many(["good", "good", work, "good"])
        assert caught.value.index == 2
        assert caught.value.submissions == ()
    with pytest.raises(InvalidInput) as caught:
        client.submit_many(["\ud800"])
    assert caught.value.index == 0
    with pytest.raises(InvalidInput) as caught:
        client.submit("\ud800")
    assert caught.value.index is None
    with pytest.raises(InvalidInput, match="text 40 has a lone surrogate") as caught:
        client.embed(["good"] * 40 + ["\ud800"])
    assert caught.value.index == 40
    assert worker.redis.keys() == worker.redis.keys("*lane*")


def test_a_bad_id_or_timeout_is_refused(client: Client) -> None:
    """Before anything is sent."""
    for job_id in ("", "two words", "x" * 129, "new\nline"):
        with pytest.raises(InvalidInput):
            client.submit("a", job_id=job_id)
        with pytest.raises(InvalidInput):
            client.wait(job_id)
        with pytest.raises(InvalidInput):
            client.cancel(job_id)
    for timeout_s in (-1, float("nan"), "5", True):
        with pytest.raises(InvalidInput, match="timeout_s"):
            client.wait("a", timeout_s=timeout_s)  # type: ignore[arg-type]


@pytest.mark.leaves_jobs
def test_a_call_over_the_depth_limit_is_refused_whole(kind: str, redis_url: str, worker: HandWorker) -> None:
    """None of its jobs is accepted, and room for one is room for one."""
    with opened(kind, redis_url, max_depth=3) as client:
        client.submit_many(["a", "b"])
        with pytest.raises(QueueFull, match="max_depth") as caught:
            client.submit_many(["c", "d"])
        assert [item.accepted for item in caught.value.submissions] == [False, False]
        for item in caught.value.submissions:
            assert client.result(item.job_id).__class__ is JobNotFound
        client.submit("c", delay_s=60)
        with pytest.raises(QueueFull):
            client.submit("d")
    assert worker.redis.xlen(worker.keys.lane("normal")) == 2


@pytest.mark.leaves_jobs
def test_a_bulk_that_fills_the_queue_half_way_says_what_was_accepted(kind: str, redis_url: str) -> None:
    """Calls before the refused one stand; those after it are not tried. Nothing is half known."""
    limit = MAX_JOBS_PER_CALL + 100
    with opened(kind, redis_url, max_depth=limit) as client:
        with pytest.raises(QueueFull) as caught:
            client.submit_many([f"text {number}" for number in range(3 * MAX_JOBS_PER_CALL)])
        submissions = caught.value.submissions
        assert [item.accepted for item in submissions] == [True] * MAX_JOBS_PER_CALL + [False] * 2 * MAX_JOBS_PER_CALL
        refused = {type(item.error) for item in submissions if not item.accepted}
        assert refused == {QueueFull}
        states = {client.get(item.job_id).state for item in submissions[:3]}
        assert states == {"queued"}
        # The accepted jobs, submitted again, are still themselves.
        again = [Job(inputs=(f"text {number}",), id=item.job_id) for number, item in enumerate(submissions[:50])]
        assert client.submit_many(again) == [item.job_id for item in submissions[:50]]


def test_a_full_server_refuses_jobs_and_still_drains(kind: str) -> None:
    """Near its limit and over it: submit is refused as full, while start and finish go on, so that room comes back."""
    with (
        private_server("--maxmemory", "30mb") as server,
        connected(server) as redis,
        opened(kind, server.url) as client,
        HandWorker(server.url) as worker,
    ):
        job_ids = client.submit_many(["a", "b"])
        fill_to(redis, 0.9)
        with pytest.raises(ServerFull, match="85 %") as near:
            client.submit("c")
        first, second = worker.take_exactly(2)
        assert worker.finish([first]) == ["done"]
        redis.config_set("maxmemory", "10mb")
        with pytest.raises(ServerFull, match="out of memory") as over:
            client.submit_many(["c", "d"])
        assert worker.finish([second]) == ["done"]
        assert all(isinstance(outcome, Result) for outcome in client.wait_many(job_ids, timeout_s=10))
        with opened(kind, server.url, queue="never-used") as newcomer, pytest.raises(ServerFull) as announced:
            newcomer.submit("c")
        for caught, jobs in ((near, 1), (over, 2), (announced, 1)):
            assert [item.accepted for item in caught.value.submissions] == [False] * jobs
        redis.config_set("maxmemory", "100mb")
        with worker.serving():
            client.wait(client.submit("c"), timeout_s=10)


def test_the_same_id_with_other_contents_is_a_conflict(client: Client, worker: HandWorker) -> None:
    """The job that has the ID is untouched, and the others of the call are accepted."""
    client.submit("first", job_id="mine")
    for other in (Job(inputs=("second",), id="mine"), Job(inputs=("first",), id="mine", metadata={"a": 1})):
        with pytest.raises(JobConflict, match="mine") as caught:
            client.submit_many(["x", other, "y"])
        assert [item.accepted for item in caught.value.submissions] == [True, False, True]
        assert caught.value.job_id == "mine"
    with worker.serving():
        assert client.wait("mine", timeout_s=10).vector.shape == (8,)


def test_each_way_to_end_badly_is_an_error_of_its_own(client: Client, worker: HandWorker) -> None:
    """The same errors are raised by `wait`, returned by `wait_many`, by `as_completed` and by `result`."""
    job_ids = client.submit_many([Job(inputs=(name,), id=name) for name in ("failed", "dead", "cancelled", "misfit")])
    by_id = {attempt.job_id: attempt for attempt in worker.take_exactly(4)}
    worker.fail([by_id["failed"]], "ValueError", "no good")
    worker.bury([by_id["dead"]], "max-attempts", "it broke five times")
    worker.fail([by_id["misfit"]], SPEC_MISMATCH, "it asks for rerank, the queue serves embed")
    client.cancel("cancelled")
    expected: dict[str, type[JobError]] = {
        "failed": JobFailed,
        "dead": JobDead,
        "cancelled": JobCancelled,
        "misfit": SpecMismatch,
        "unknown": JobNotFound,
    }
    ids = [*job_ids, "unknown"]
    for job_id in ids:
        with pytest.raises(expected[job_id], match=job_id) as caught:
            client.wait(job_id, timeout_s=10)
        assert caught.value.job_id == job_id
        assert type(client.result(job_id)) is expected[job_id]
    assert [type(outcome) for outcome in client.wait_many(ids, timeout_s=10)] == [expected[job_id] for job_id in ids]
    seen = {outcome.job_id: type(outcome) for outcome in client.as_completed(ids, timeout_s=10)}
    assert seen == expected
    with pytest.raises(JobFailed) as failed:
        client.wait("failed")
    assert (failed.value.code, str(failed.value)) == ("ValueError", "job failed failed: ValueError: no good")
    with pytest.raises(JobDead, match="after 1 attempts") as dead:
        client.wait("dead")
    assert dead.value.code == "max-attempts"


def test_a_wait_ends_its_own_overdue_job_without_any_worker(client: Client, worker: HandWorker) -> None:
    """No janitor is needed, the wait does not sit out its timeout, and a job that waits for its delay counts too."""
    soon = client.submit("soon", expires_s=0.3)
    delayed = client.submit("delayed", delay_s=60, expires_s=0.6)
    other = client.submit("never waited for", expires_s=0.3)
    began = time.monotonic()
    outcomes = [type(outcome) for outcome in client.wait_many([soon, delayed], timeout_s=30)]
    assert outcomes == [JobExpired, JobExpired]
    assert time.monotonic() - began < 3
    assert client.get(other).state == "queued"
    with pytest.raises(JobExpired, match="before it was started"):
        client.wait(other, timeout_s=0)
    assert worker.redis.zcard(worker.keys.named("expiring")) == 0


def test_a_job_that_was_begun_in_time_does_not_expire(client: Client, worker: HandWorker) -> None:
    """`expires` is about the start."""
    job_id = client.submit("a", expires_s=0.2)
    taken = worker.take_exactly(1)
    with pytest.raises(WaitTimeout):
        client.wait(job_id, timeout_s=0.5)
    worker.finish(taken)
    assert client.wait(job_id, timeout_s=10).job_id == job_id


def test_vectors_of_two_models_are_not_put_together(client: Client, redis_url: str) -> None:
    """A model that is swapped half way must not mix its vectors into one array; nor may their widths differ."""
    with HandWorker(redis_url, fingerprint="old") as old, HandWorker(redis_url, fingerprint="new") as new:

        def end(attempts: list[Any]) -> None:
            for attempt in attempts:
                (old if b"first" in attempt.payload else new).finish([attempt])

        with old.serving(end), pytest.raises(SpecMismatch, match=r"by new .* by old"):
            client.embed(["first"] + ["x"] * 40, timeout_s=20)

        def cut(attempts: list[Any]) -> None:
            for attempt in attempts:
                old.finish([attempt], dim=8 if b"first" in attempt.payload else 4)

        with old.serving(cut), pytest.raises(SpecMismatch, match=r"\(9, 4\).*\(32, 8\)"):
            client.embed(["first"] + ["x"] * 40, timeout_s=20)


def test_without_a_server_every_call_says_so_soon(kind: str, tmp_path: Path) -> None:
    """Within seconds, and a submit says that it is not known whether its jobs were accepted, by their IDs."""
    began = time.monotonic()
    with opened(kind, f"unix://{tmp_path}/no.sock") as client:
        with pytest.raises(ServerUnavailable) as caught:
            client.submit_many(["a", "b"])
        assert [type(item.error) for item in caught.value.submissions] == [ServerUnavailable] * 2
        assert all(item.job_id for item in caught.value.submissions)
        with pytest.raises(ServerUnavailable):
            client.get("a")
        with pytest.raises(ServerUnavailable):
            client.cancel("a")
        with pytest.raises(ServerUnavailable):
            client.wait("a", timeout_s=0.5)
    assert time.monotonic() - began < 6


def test_a_replica_and_a_locked_server_are_no_servers(kind: str) -> None:
    """The message says which of the two it is."""
    with private_server() as server, connected(server) as redis:
        redis.execute_command("REPLICAOF", "127.0.0.1", "1")
        with opened(kind, server.url) as client, pytest.raises(ServerUnavailable, match="read-only replica"):
            client.submit("a")
    with (
        private_server("--requirepass", "secret") as server,
        opened(kind, server.url) as client,
        pytest.raises(ServerUnavailable, match="refused the login"),
    ):
        client.submit("a")
