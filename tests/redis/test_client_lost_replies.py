from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from cordwood import Client, ServerUnavailable
from cordwood.embedded import EmbeddedServer
from tests.clients import KINDS, opened
from tests.finishing import HandWorker
from tests.lossy_proxy import LossyProxy


@pytest.fixture
def worker(redis_url: str) -> Iterator[HandWorker]:
    """A worker by hand, on a connection that loses nothing."""
    with HandWorker(redis_url) as made:
        yield made


@pytest.fixture
def proxy(redis_url: str, server: EmbeddedServer) -> Iterator[LossyProxy]:
    """The way that the client takes, to a server that was emptied."""
    assert redis_url == server.url
    with LossyProxy(server.socket) as made:
        yield made


@pytest.fixture(params=KINDS)
def client(request: pytest.FixtureRequest, proxy: LossyProxy) -> Iterator[Client]:
    """Either client, by way of the proxy; it has made its first call, so that the server knows the scripts."""
    with opened(request.param, proxy.url) as made:
        made.cancel(made.submit("first"))
        yield made


def test_a_submit_whose_reply_is_lost_adds_its_jobs_once(client: Client, proxy: LossyProxy, worker: HandWorker) -> None:
    """The connection repeats the call, the script finds its own records, and the caller notices nothing."""
    proxy.lose(2)
    job_ids = client.submit_many(["a", "b", "c"])
    assert proxy.lost == 2
    taken = worker.take_exactly(3)
    assert [attempt.job_id for attempt in taken] == job_ids
    assert worker.take() == []
    assert worker.redis.hget(worker.keys.named("stats"), "submitted") == b"4"
    worker.finish(taken)
    assert len(client.wait_many(job_ids, timeout_s=10)) == 3


def test_a_submit_whose_every_reply_is_lost_may_be_repeated_with_its_ids(
    client: Client, proxy: LossyProxy, worker: HandWorker
) -> None:
    """The error has the IDs, though the caller chose none; the jobs were there all along, once."""
    proxy.lose(1000)
    with pytest.raises(ServerUnavailable) as caught:
        client.submit("a")
    proxy.lose(0)
    (submission,) = caught.value.submissions
    assert not submission.accepted
    assert client.submit("a", job_id=submission.job_id) == submission.job_id
    taken = worker.take_exactly(1)
    assert worker.take() == []
    worker.finish(taken)
    assert client.wait(submission.job_id, timeout_s=10).attempt == 1


def test_a_cancel_whose_reply_is_lost_still_answers_what_it_did(
    client: Client, proxy: LossyProxy, worker: HandWorker
) -> None:
    """Its repetition finds the job cancelled."""
    job_id = client.submit("a")
    proxy.lose(1)
    assert client.cancel(job_id) == {job_id: "cancelled"}
    assert proxy.lost == 1
    assert worker.take() == []


def test_a_wait_that_loses_reply_after_reply_gets_its_result(
    client: Client, proxy: LossyProxy, worker: HandWorker
) -> None:
    """It looks again by itself."""
    job_id = client.submit("a")
    taken = worker.take_exactly(1)
    proxy.lose(3)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.wait, job_id, timeout_s=20)
        worker.finish(taken)
        assert waiting.result(10).job_id == job_id
    assert proxy.lost == 3
