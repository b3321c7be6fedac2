from collections.abc import Iterator

import pytest

from cordwood import Client, Job, JobConflict, JobNotFound
from cordwood.calls import submit_call
from cordwood.connection import run_script
from cordwood.job import encode_job
from tests.clients import KINDS, opened
from tests.finishing import LIMITS, HandWorker


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


def test_the_same_id_with_the_same_contents_is_the_same_job(client: Client, worker: HandWorker) -> None:
    """Submitted while it waits, while it runs and after it was done, it runs once; its other options do not count."""
    for lane in ("normal", "low"):
        assert client.submit("text", job_id="mine", lane=lane, metadata={"a": 1, "b": 2}) == "mine"
    taken = worker.take_exactly(1)
    client.submit("text", job_id="mine", metadata={"b": 2, "a": 1})
    worker.finish(taken)
    client.submit("text", job_id="mine", metadata={"a": 1, "b": 2})
    assert worker.take() == []
    assert client.wait("mine", timeout_s=10).attempt == 1


def test_the_same_job_twice_in_one_call_runs_once(client: Client, worker: HandWorker) -> None:
    """Also if the two are so far apart that they travel in two requests; other contents in the same call conflict."""
    one = Job(inputs=("text",), id="mine")
    assert client.submit_many([one, one]) == ["mine", "mine"]
    fillers = [Job(inputs=(f"filler {number}",)) for number in range(600)]
    assert client.submit_many([one, *fillers, one])[::601] == ["mine", "mine"]
    with pytest.raises(JobConflict) as caught:
        client.submit_many([Job(inputs=("a",), id="new"), Job(inputs=("b",), id="new")])
    assert [item.state for item in caught.value.submissions] == ["new", ""]
    taken = worker.take_exactly(602)
    assert sorted(attempt.job_id for attempt in taken).count("mine") == 1
    worker.finish(taken)


def test_a_failed_job_submitted_again_is_still_the_failed_one(client: Client, worker: HandWorker) -> None:
    """An ID names one job for good; whoever wants another attempt takes another ID."""
    client.submit("text", job_id="mine")
    worker.fail(worker.take_exactly(1))
    client.submit("text", job_id="mine")
    assert client.get("mine").state == "failed"
    assert worker.take() == []


def test_a_lost_reply_of_submit_adds_one_entry(client: Client, worker: HandWorker) -> None:
    """The connection repeats a call whose reply it did not get: the script finds its own record and says so."""
    job = encode_job(Job(inputs=("text",), id="mine"), LIMITS, Job(inputs=()))
    call = submit_call(worker.keys, [job], max_depth=10, waiter_mask=1)
    assert [run_script(worker.redis, call) for _ in range(3)] == [[b"new"], [b"dup:queued"], [b"dup:queued"]]
    assert client.submit("text", job_id="mine") == "mine"
    assert worker.redis.xlen(worker.keys.lane("normal")) == 1
    worker.finish(worker.take_exactly(1))
    assert client.wait("mine", timeout_s=10).attempt == 1


def test_an_id_is_free_again_when_its_record_is_gone(client: Client, worker: HandWorker) -> None:
    """After its TTL, or a wiped server, the ID names nothing, and what is submitted under it is new."""
    client.submit("text", job_id="mine")
    worker.finish(worker.take_exactly(1))
    assert worker.redis.delete(worker.keys.job("mine")) == 1
    with pytest.raises(JobNotFound):
        client.wait("mine", timeout_s=5)
    client.submit("other text", job_id="mine")
    worker.finish(worker.take_exactly(1))
    assert client.wait("mine", timeout_s=10).attempt == 1
