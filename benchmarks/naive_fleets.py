"""The rivals that go through Redis, in processes of their own; the texts are there before their clock runs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from redis import Redis

from benchmarks.arrival_worker import Kind
from benchmarks.processes import await_ready, frozen, running

if TYPE_CHECKING:
    from benchmarks.served import Served

LOOK_S: Final = 0.005
"""How often a client of these looks whether all is done; nothing tells it."""
LONGEST_S: Final = 240.0
RQ_TASK: Final = "benchmarks.rq_worker.embed"
RQ_QUEUE: Final = "naive"


@dataclass(frozen=True, slots=True)
class ArrivalFleet:
    """A worker that takes texts as they arrive (`benchmarks.arrival_worker`)."""

    client: Any
    worker: subprocess.Popen[str]
    log: Path

    def await_ready(self, kind: Kind) -> None:
        """Wait until it can take texts of a kind."""
        await_ready(self.worker, self.log, lambda: bool(self.client.exists(kind.ready)))

    def seconds(self, texts: Sequence[str], kind: Kind) -> float:
        """Have all texts embedded; return the seconds from when the worker may begin until all vectors are read."""
        with frozen(self.worker), self.client.pipeline(transaction=True) as pipe:
            for text in texts:
                pipe.xadd(kind.stream, {"text": text})
            pipe.execute()
            began_s = perf_counter()
        _await(lambda: self.client.hlen(kind.vectors) >= len(texts))
        read = self.client.hgetall(kind.vectors)
        took_s = perf_counter() - began_s
        if len(read) != len(texts):
            raise RuntimeError(f"{len(read)} vectors for {len(texts)} texts")
        self.client.delete(kind.vectors)
        self.client.xtrim(kind.stream, maxlen=0, approximate=False)
        return took_s


@contextmanager
def arrival_fleet(served: Served, kinds: Sequence[Kind], device: str) -> Iterator[ArrivalFleet]:
    """Start such a worker for some kinds, on the server that is there."""
    log = served.folder / "arrival.log"
    client: Any = Redis.from_url(served.url)
    arguments = ["-m", "benchmarks.arrival_worker", served.url, device, *map(str, kinds)]
    with client, running(arguments, log) as worker:
        yield ArrivalFleet(client, worker, log)


@dataclass(frozen=True, slots=True)
class RqFleet:
    """rq's SimpleWorker with a job for each text (`benchmarks.rq_worker`)."""

    queue: Any
    worker: subprocess.Popen[str]
    log: Path
    arguments: tuple[str, str]

    def await_ready(self) -> None:
        """Wait until it has registered and done a first job, for which it loads the model."""
        from rq import Worker

        await_ready(self.worker, self.log, lambda: Worker.count(connection=self.queue.connection) > 0)
        self.seconds(["A text that loads the model."])

    def seconds(self, texts: Sequence[str]) -> float:
        """Have all texts embedded; return the seconds from when the worker may begin until all results are read."""
        from rq.job import Job

        with frozen(self.worker):
            with self.queue.connection.pipeline() as pipe:
                jobs = [self.queue.enqueue(RQ_TASK, text, *self.arguments, pipeline=pipe) for text in texts]
                pipe.execute()
            began_s = perf_counter()
        finished = self.queue.finished_job_registry
        _await(lambda: finished.get_job_count(cleanup=False) >= len(texts))
        ended = Job.fetch_many([job.id for job in jobs], self.queue.connection)
        results = [None if job is None else job.return_value() for job in ended]
        took_s = perf_counter() - began_s
        if any(result is None for result in results):
            raise RuntimeError("rq has no result for some texts")
        for job in jobs:
            finished.remove(job, delete_job=True)
        return took_s


@contextmanager
def rq_fleet(served: Served, precision: str, device: str) -> Iterator[RqFleet]:
    """Start such a worker. Raises ImportError where rq is not installed."""
    from rq import Queue

    log = served.folder / "rq.log"
    client: Any = Redis.from_url(served.url)
    with client, running(["-m", "benchmarks.rq_worker", served.url, RQ_QUEUE], log) as worker:
        yield RqFleet(Queue(RQ_QUEUE, connection=client), worker, log, (precision, device))


def _await(is_over: Callable[[], bool]) -> None:
    ends_s, pause = perf_counter() + LONGEST_S, Event()
    while not is_over():
        if perf_counter() > ends_s:
            raise TimeoutError(f"a rival was not done after {LONGEST_S:g} s")
        pause.wait(LOOK_S)
