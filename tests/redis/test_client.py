from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from cordwood import Client, InvalidInput, Job, JobFailed, JobNotFound, Result
from cordwood_worker.testing import fault_vector
from tests.clients import KINDS, opened
from tests.finishing import HandWorker, decoded


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


def test_a_job_goes_there_and_its_result_comes_back(client: Client, worker: HandWorker) -> None:
    """The result names its job, its worker, its attempt and its times in order."""
    job_id = client.submit("hello", metadata={"page": 7})
    assert client.get(job_id).state == "queued"
    assert client.result(job_id) is None
    worker.finish(worker.take_exactly(1))
    result = client.wait(job_id, timeout_s=10)
    np.testing.assert_array_equal(result.vector, fault_vector("hello"))
    assert (result.job_id, result.attempt, result.worker) == (job_id, 1, worker.consumer)
    assert result.outputs.metadata == {"page": 7}
    assert 0 < result.submitted_ms <= result.started_ms <= result.finished_ms
    assert client.get(job_id).state == "done"
    assert isinstance(client.result(job_id), Result)


def test_a_job_may_be_a_text_a_pair_a_list_or_a_whole_job(client: Client, worker: HandWorker) -> None:
    """Inputs arrive as they were given, and options reach every kind of work."""
    works: list[Any] = ["a", ("query", "document"), ["a", "b", "c"], [("q", "1"), ("q", "2")], Job(inputs=("x",))]
    job_ids = client.submit_many(works, metadata={"k": 1}, lane="high")
    taken = worker.take_exactly(len(works))
    payloads = [decoded(attempt) for attempt in taken]
    assert [attempt.job_id for attempt in taken] == job_ids
    assert [payload.inputs for payload in payloads] == [
        ("a",),
        (("query", "document"),),
        ("a", "b", "c"),
        (("q", "1"), ("q", "2")),
        ("x",),
    ]
    assert all(payload.metadata == {"k": 1} for payload in payloads)
    assert {attempt.entry.lane for attempt in taken} == {"high"}
    worker.fail(taken)


def test_outcomes_come_in_the_callers_order_whatever_the_order_of_finishing(client: Client, worker: HandWorker) -> None:
    """A failed job stands in its own position, and an ID asked for twice is answered twice."""
    job_ids = client.submit_many([f"text {number}" for number in range(20)])
    taken = worker.take_exactly(20)
    worker.fail([taken[7]])
    worker.finish([attempt for attempt in reversed(taken) if attempt is not taken[7]])
    outcomes = client.wait_many([*job_ids, job_ids[3]], timeout_s=10)
    assert [outcome.job_id for outcome in outcomes] == [*job_ids, job_ids[3]]
    assert isinstance(outcomes[7], JobFailed)
    for number in {*range(20)} - {7}:
        outcome = outcomes[number]
        assert isinstance(outcome, Result)
        np.testing.assert_array_equal(outcome.vector, fault_vector(f"text {number}"))


def test_an_iterator_of_ids_may_be_waited_for(client: Client, worker: HandWorker) -> None:
    """It is read once, and every ID gets its outcome; no IDs give no outcomes."""
    job_ids = client.submit_many(["a", "b"])
    worker.finish(worker.take_exactly(2))
    assert [outcome.job_id for outcome in client.wait_many(iter(job_ids), timeout_s=10)] == job_ids
    assert client.wait_many([], timeout_s=10) == []
    assert list(client.as_completed([], timeout_s=10)) == []


def test_one_id_in_the_place_of_many_is_refused(client: Client) -> None:
    """It would be read as IDs of one character each."""
    with pytest.raises(InvalidInput, match="in a list"):
        client.wait_many("some-job")
    with pytest.raises(InvalidInput, match="in a list"):
        list(client.as_completed("some-job"))
    with pytest.raises(InvalidInput, match="iterable of jobs"):
        client.submit_many("text")


def test_cancelled_jobs_say_what_they_are_now(client: Client, worker: HandWorker) -> None:
    """Queued, running and ended jobs and unknown ones are answered, each in one word."""
    running, queued, ended = client.submit("running"), client.submit("queued"), client.submit("ended")
    taken = {attempt.job_id: attempt for attempt in worker.take_exactly(3)}
    worker.attempts.release([(taken[queued].entry, taken[queued].token)])
    worker.finish([taken[ended]])
    answers = client.cancel([running, queued, ended, "unknown"])
    assert answers == {running: "cancelled", queued: "cancelled", ended: "done", "unknown": "missing"}
    assert client.cancel(running) == {running: "cancelled"}
    assert worker.finish([taken[running]]) == ["already:cancelled"]
    assert worker.take() == []


def test_embedding_gives_one_row_a_text_in_order(client: Client, worker: HandWorker) -> None:
    """A hundred texts travel as a few jobs."""
    texts = [f"text {number}" for number in range(100)]
    with worker.serving():
        vectors = client.embed(texts, timeout_s=20)
    assert vectors.shape == (100, 8)
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors, np.stack([fault_vector(text) for text in texts]))
    assert worker.redis.hget(worker.keys.named("stats"), "submitted") == b"4"


def test_embedding_nothing_gives_no_rows_of_the_queues_width(client: Client, worker: HandWorker) -> None:
    """So that an empty page does not break the code around it; 0 is the width where none is known."""
    assert client.embed([]).shape == (0, 0)
    worker.upkeep.announce({"dim": 384})
    assert client.embed([]).shape == (0, 384)


def test_an_embedding_that_fails_is_the_first_failed_jobs_error(client: Client, worker: HandWorker) -> None:
    """The error names the job."""
    with worker.serving(worker.fail), pytest.raises(JobFailed, match="ValueError: no good"):
        client.embed(["a", "b"], timeout_s=20)


def test_a_client_may_use_several_queues(client: Client, redis_url: str, worker: HandWorker) -> None:
    """A job is only known in its own queue, and the queues have different keys."""
    with HandWorker(redis_url, queue="other") as other, other.serving():
        job_id = client.submit("a", queue="other")
        assert client.wait(job_id, timeout_s=10, queue="other").job_id == job_id
        with pytest.raises(JobNotFound):
            client.get(job_id)
    assert worker.take() == []
    assert worker.redis.smembers("cw:queues") == {b"other"}


def test_a_queue_needs_a_valid_name(client: Client, redis_url: str) -> None:
    """Whether it is the client's own or a call's."""
    with pytest.raises(InvalidInput, match="queue name"):
        client.submit("a", queue="two words")
    with pytest.raises(InvalidInput, match="queue name"), opened("blocking", redis_url, queue="{x}"):
        pass


@pytest.mark.parametrize("kind", KINDS)
def test_a_url_that_would_be_misread_is_refused_and_not_shown(kind: str) -> None:
    """A raw special character in a password makes another host of a URL."""
    with pytest.raises(InvalidInput, match="percent-encode") as caught, opened(kind, "redis://:p@ss/w#rd@host/0"):
        pass
    assert "ss/w" not in str(caught.value)
