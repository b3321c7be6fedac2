"""`queue`: what the protocol costs per job, in the client, the worker and the server, and in the server's memory."""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from benchmarks.measure import Report, Spread, Timing
from cordwood.calls import split, submit_call
from cordwood.connection import connect, run_script
from cordwood.embedded import EmbeddedServer
from cordwood.job import EncodedJob, Job, JobLimits, encode_job
from cordwood.keys import Keys, queue_keys
from cordwood_worker.allowance import allow
from cordwood_worker.broker.attempts import Attempts, Done
from cordwood_worker.broker.connection import QueueConnection
from cordwood_worker.broker.lanes import LaneReader
from cordwood_worker.broker.upkeep import Upkeep
from cordwood_worker.entry import Attempt
from cordwood_worker.lanes import LanePolicy

PAYLOAD_BYTES: Final = 300
RESULT_BYTES: Final = 1536
BATCH: Final = 100
LIMITS: Final = JobLimits(max_payload_bytes=10_000, max_inputs=4)
DEFAULTS: Final = Job(inputs=(), max_attempts=5, result_ttl_s=600.0)


class Bench:
    """One server, one worker's broker, and the same jobs again and again."""

    def __init__(self, url: str, jobs: int) -> None:
        self.redis = connect(url)
        self.keys: Keys = queue_keys("bench")
        self.jobs = jobs
        queue = QueueConnection(self.redis, self.keys, "bench.1.a")
        self._attempts = Attempts(queue, 3600.0, perf_counter)
        self._reader = LaneReader(queue, perf_counter)
        self._reader.create_groups()
        Upkeep(queue, heartbeat_s=2.0, ttl_s=3600.0, clock=perf_counter).beat(b"")

    def encode(self) -> list[EncodedJob]:
        """Make jobs with IDs of their own."""
        text = "x" * PAYLOAD_BYTES
        return [encode_job(Job(inputs=(text,)), LIMITS, DEFAULTS) for _ in range(self.jobs)]

    def submit(self, jobs: list[EncodedJob]) -> None:
        """Submit in batches."""
        for chunk in split(jobs, BATCH):
            run_script(self.redis, submit_call(self.keys, chunk, max_depth=10**9, waiter_mask=1))

    def start(self) -> list[Attempt]:
        """Read and start all."""
        started: list[Attempt] = []
        while entries := self._reader.read(allow(LanePolicy(), {}, BATCH, BATCH)):
            started += [item for item in self._attempts.start(entries) if isinstance(item, Attempt)]
        return started

    def finish(self, attempts: list[Attempt]) -> None:
        """Store a result for each."""
        result = b"r" * RESULT_BYTES
        for chunk in split(attempts, BATCH):
            self._attempts.finish([Done(attempt, result) for attempt in chunk])

    def info(self, section: str) -> dict[str, Any]:
        """The server's own account."""
        answer: Any = self.redis.info(section)
        return dict(answer)

    def server_cpu_s(self) -> float:
        """The processor time that the server has used."""
        cpu = self.info("cpu")
        return float(cpu["used_cpu_sys"]) + float(cpu["used_cpu_user"])


def run(*, quick: bool) -> Report:
    """Measure with the append-only file off, and written through every second."""
    jobs, repeats = (2_000, 3) if quick else (10_000, 5)
    settings = {"jobs": jobs, "payload_bytes": PAYLOAD_BYTES, "result_bytes": RESULT_BYTES, "batch": BATCH}
    report = Report(benchmark="queue", settings=settings)
    for name, durable in (("", False), ("_aof", True)):
        _measure(report, name, jobs, repeats, durable=durable)
    return report


def _measure(report: Report, suffix: str, jobs: int, repeats: int, *, durable: bool) -> None:
    taken: dict[str, list[float]] = {"submit": [], "start": [], "finish": [], "server_cpu": [], "queued_bytes": []}
    with tempfile.TemporaryDirectory(prefix="cwb") as folder, EmbeddedServer(Path(folder), durable=durable) as server:
        bench = Bench(server.url, jobs)
        for _ in range(repeats + 1):
            _one_round(bench, taken)
    for name, values in taken.items():
        counted = values[1:]
        if name == "queued_bytes":
            report.figures[f"bytes_per_queued_job{suffix}"] = statistics.median(counted) / jobs
            continue
        report.results[f"{name}{suffix}"] = Timing(seconds=Spread.of(counted))
        figure = "server_cpu_us" if name == "server_cpu" else f"{name}_us"
        report.figures[f"{figure}{suffix}"] = statistics.median(counted) / jobs * 1e6


def _one_round(bench: Bench, taken: dict[str, list[float]]) -> None:
    """The server's time is that of the whole round; the others' are what their callers wait."""
    encoded = bench.encode()
    empty = bench.info("memory")["used_memory"]
    cpu_s, marks = bench.server_cpu_s(), [perf_counter()]
    bench.submit(encoded)
    marks.append(perf_counter())
    taken["queued_bytes"].append(bench.info("memory")["used_memory"] - empty)
    marks.append(perf_counter())
    started = bench.start()
    marks.append(perf_counter())
    bench.finish(started)
    marks.append(perf_counter())
    if len(started) != bench.jobs:
        raise RuntimeError(f"{len(started)} of {bench.jobs} jobs were started")
    taken["server_cpu"].append(bench.server_cpu_s() - cpu_s)
    for name, began, ended in (("submit", 0, 1), ("start", 2, 3), ("finish", 3, 4)):
        taken[name].append(marks[ended] - marks[began])
    bench.redis.delete(*map(bench.keys.job, (job.id for job in encoded)))
