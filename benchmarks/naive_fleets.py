"""The rivals that go through Redis: each a process of its own, and the texts put where it looks before its clock runs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from threading import Event
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from redis import Redis

from benchmarks.processes import await_ready, frozen, running

if TYPE_CHECKING:
    from benchmarks.served import Served

LOOK_S: Final = 0.005
"""How often a client of these looks whether all is done; nothing tells it."""
LONGEST_S: Final = 240.0


@dataclass(frozen=True, slots=True)
class ArrivalFleet:
    """Workers that take up to so many texts as they arrive (`benchmarks.arrival_worker`)."""

    client: Any
    stream: str
    worker: subprocess.Popen[str]

    def seconds(self, texts: Sequence[str]) -> float:
        """Have all texts embedded; return the seconds from when the worker may begin until all vectors are read."""
        vectors = f"{self.stream}:vectors"
        with frozen(self.worker), self.client.pipeline(transaction=True) as pipe:
            for text in texts:
                pipe.xadd(self.stream, {"text": text})
            pipe.execute()
            began_s = perf_counter()
        _await(lambda: self.client.hlen(vectors) >= len(texts))
        read = self.client.hgetall(vectors)
        took_s = perf_counter() - began_s
        if len(read) != len(texts):
            raise RuntimeError(f"{len(read)} vectors for {len(texts)} texts")
        self.client.delete(vectors)
        self.client.xtrim(self.stream, maxlen=0, approximate=False)
        return took_s


_numbers: Final = count()


@contextmanager
def arrival_fleet(served: Served, size: int, precision: str, device: str) -> Iterator[ArrivalFleet]:
    """Run one such worker, loaded and warmed up, on the server that is there."""
    stream = f"arrival-{size}-{precision}-{next(_numbers)}"
    log = served.folder / f"{stream}.log"
    arguments = ["-m", "benchmarks.arrival_worker", served.url, stream, str(size), precision, device]
    client: Any = Redis.from_url(served.url)
    with client, running(arguments, log) as worker:
        await_ready(worker, log, lambda: bool(client.exists(f"{stream}:ready")))
        yield ArrivalFleet(client, stream, worker)


@dataclass(frozen=True, slots=True)
class RqFleet:
    """rq's SimpleWorker with a job for each text (`benchmarks.rq_worker`)."""

    queue: Any
    worker: subprocess.Popen[str]
    arguments: tuple[str, str]

    def seconds(self, texts: Sequence[str]) -> float:
        """Have all texts embedded; return the seconds from when the worker may begin until all results are read."""
        from rq.job import Job

        from benchmarks.rq_worker import TASK

        with frozen(self.worker):
            with self.queue.connection.pipeline() as pipe:
                jobs = [self.queue.enqueue(TASK, text, *self.arguments, pipeline=pipe) for text in texts]
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
    """Run one such worker, its model loaded by a first job. Raises ImportError where rq is not installed."""
    from rq import Queue, Worker

    from benchmarks.rq_worker import QUEUE

    log = served.folder / "rq.log"
    client: Any = Redis.from_url(served.url)
    with client, running(["-m", "benchmarks.rq_worker", served.url], log) as worker:
        await_ready(worker, log, lambda: Worker.count(connection=client) > 0)
        fleet = RqFleet(Queue(QUEUE, connection=client), worker, (precision, device))
        fleet.seconds(["A text that loads the model."])
        yield fleet


def _await(is_over: Callable[[], bool]) -> None:
    ends_s, pause = perf_counter() + LONGEST_S, Event()
    while not is_over():
        if perf_counter() > ends_s:
            raise TimeoutError(f"a rival was not done after {LONGEST_S:g} s")
        pause.wait(LOOK_S)
