"""Fleets of real worker processes: started, watched, stopped, killed, and never left behind by a test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cordwood import Client
from cordwood.connection import connect
from cordwood.inspection import look_at_workers
from cordwood.keys import ALL_LANES, GROUP, queue_keys
from tests.waiting import wait_until

if TYPE_CHECKING:
    import pytest

ROOT: Final = Path(__file__).parents[1]
QUEUE: Final = "embed"
FAULT_MODEL: Final = "python:cordwood_worker.testing:fault_backend"
READY_S: Final = 120.0
"""A worker imports for a second, or for ten with torch; a busy machine may make many of it."""
EXIT_S: Final = 30.0

QUICK: Final[Mapping[str, Any]] = {"lease_s": 3.0, "heartbeat_s": 0.2, "heartbeat_ttl_s": 1.0, "max_batch_rows": 16}
"""Settings under which a death is noticed within a second."""
PATIENT: Final[Mapping[str, Any]] = {**QUICK, "heartbeat_ttl_s": 10.0}
"""The same for tests in which a worker must not be taken for dead because the machine is busy."""

# Runs `python -m cordwood_worker`, after asking Linux to kill it with the test process: 1 is PR_SET_PDEATHSIG.
_LAUNCH: Final = """
import ctypes, os, runpy, signal, sys
parent = int(sys.argv.pop(1))
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)
runpy.run_module("cordwood_worker", run_name="__main__", alter_sys=True)
"""


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """One `cordwood-worker run`, and what it wrote to its standard error."""

    process: subprocess.Popen[bytes]
    log_file: Path

    @property
    def pid(self) -> int:
        """Its process number."""
        return self.process.pid

    @property
    def running(self) -> bool:
        """Whether it lives."""
        return self.process.poll() is None

    @property
    def log(self) -> str:
        """What it has written so far."""
        return self.log_file.read_text("utf-8", "backslashreplace")

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """Kill it as kill -9 does, and return when it is gone."""
        self.process.kill()
        self.process.wait()

    def exit_code(self, timeout_s: float = EXIT_S) -> int:
        """Wait for its end and return its exit code, minus the signal's number if one killed it."""
        return self.process.wait(timeout_s)

    def wait_for_log(self, text: str, timeout_s: float = EXIT_S) -> None:
        """Wait until it has written this."""
        wait_until(lambda: text in self.log, description=f"{text!r} is in the worker's log", timeout_s=timeout_s)


class Fleet:
    """Worker processes on one queue of one server, and a client of it, which outlives the fleet.

    `configure` says what the next workers are started with.
    """

    def __init__(self, client: Client, url: str, folder: Path) -> None:
        self.client = client
        self.url = url
        self.folder = folder
        self.workers: list[WorkerProcess] = []
        self.keys = queue_keys(QUEUE)
        self.redis = connect(url)
        self.configure()

    @property
    def hold_file(self) -> Path:
        """While this file exists, workers configured with `holding=True` stay in the batch they have begun."""
        return self.folder / "hold"

    @property
    def living(self) -> list[WorkerProcess]:
        """The workers that have not ended."""
        return [worker for worker in self.workers if worker.running]

    def configure(
        self,
        settings: Mapping[str, Any] = QUICK,
        *,
        model: str = FAULT_MODEL,
        precision: str = "fp32",
        backend: str = "auto",
        holding: bool = False,
        options: Mapping[str, Any] | None = None,
        others: Mapping[str, Mapping[str, Any]] | None = None,
        **more: Any,
    ) -> None:
        """Write the configuration: general settings, then the queue's model, precision, backend and options.

        `others` are queues of the same model and options, with settings of their own.
        """
        given = {**(options or {}), **({"hold_file": str(self.hold_file)} if holding else {})}
        lines = [f"{name} = {json.dumps(value)}" for name, value in {**settings, **more}.items()]
        for queue, own in {QUEUE: {}, **(others or {})}.items():
            chosen = {"model": model, "precision": precision, "backend": backend, **own}
            lines.append(f"[queues.{queue}]")
            lines += [f"{name} = {json.dumps(value)}" for name, value in chosen.items()]
            lines += [f"options.{name} = {json.dumps(value)}" for name, value in given.items()]
        (self.folder / "fleet.toml").write_text("\n".join(lines) + "\n", "utf-8")

    def spawn(self, *flags: str) -> WorkerProcess:
        """Start one worker and return at once."""
        log_file = self.folder / f"worker-{len(self.workers)}.log"
        arguments = ["run", "--config", str(self.folder / "fleet.toml"), "--redis-url", self.url, *flags]
        with log_file.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-c", _LAUNCH, str(os.getpid()), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=worker_environment(),
                cwd=self.folder,
            )
        worker = WorkerProcess(process, log_file)
        self.workers.append(worker)
        return worker

    def start(self, count: int = 1, *flags: str) -> list[WorkerProcess]:
        """Start workers and return when the registry shows them all."""
        started = [self.spawn(*flags) for _ in range(count)]
        for worker in started:
            self.consumer(worker)
        return started

    def consumer(self, worker: WorkerProcess) -> str:
        """Wait until a worker is in the registry, and return its consumer name."""

        def find() -> str:
            assert worker.running, f"a worker ended with exit code {worker.process.returncode}:\n{worker.log}"
            names: Any = self.redis.zrange(self.keys.named("workers"), 0, -1)
            mine = [name.decode() for name in names if name.decode().split(".")[-2] == str(worker.pid)]
            return mine[0] if mine else ""

        return wait_until(find, description=f"worker {worker.pid} is registered", timeout_s=READY_S)

    def batch_of(self, worker: WorkerProcess) -> list[str]:
        """Wait until a worker computes a batch, and return the batch's job IDs."""
        field_name = f"{self.consumer(worker)}:run"

        def find() -> list[str]:
            marked: Any = self.redis.hget(self.keys.named("batch"), field_name)
            return (marked or b"").decode().split()

        return wait_until(find, description=f"worker {worker.pid} computes a batch", timeout_s=READY_S)

    def supervise(self, is_over: Callable[[], bool], *, most_starts: int, timeout_s: float = 120.0) -> None:
        """Start a worker whenever none lives, as a supervisor would, until it is over."""
        limit = len(self.workers) + most_starts

        def step() -> bool:
            if not self.living and not is_over():
                assert len(self.workers) < limit, f"{most_starts} starts were not enough"
                self.start()
            return is_over()

        wait_until(step, description="supervised workers are through", timeout_s=timeout_s)

    def hold(self) -> None:
        """Make workers stay in the next batch they begin."""
        self.hold_file.touch()

    def let_go(self) -> None:
        """Let workers finish what they hold."""
        self.hold_file.unlink(missing_ok=True)

    def stat(self, name: str) -> int:
        """Read one of the queue's counters."""
        value: Any = self.redis.hget(self.keys.named("stats"), name)
        return int(value or 0)

    def held(self) -> int:
        """Count the entries that living workers said they held when they last showed themselves."""
        living = {worker.pid for worker in self.living}
        infos = [view.info for view in look_at_workers(self.redis, self.keys)]
        return sum(info["held"] for info in infos if info["pid"] in living)

    def pending(self) -> dict[str, int]:
        """Count the entries in consumers' hands, by lane, where there are any."""
        counts: dict[str, int] = {}
        for lane, stream in ((lane, self.keys.lane(lane)) for lane in ALL_LANES):
            groups: Any = self.redis.xinfo_groups(stream) if self.redis.exists(stream) else []
            counts[lane] = sum(int(group["pending"]) for group in groups if group["name"] == GROUP.encode())
        return {lane: count for lane, count in counts.items() if count}

    def lengths(self) -> dict[str, int]:
        """Count the entries of the lanes, delivered or not, where there are any."""
        counts: dict[str, Any] = {lane: self.redis.xlen(self.keys.lane(lane)) for lane in ALL_LANES}
        return {lane: count for lane, count in counts.items() if count}

    def close(self) -> None:
        """Kill what still runs, and wait for it."""
        for worker in self.workers:
            worker.process.kill()
        for worker in self.workers:
            worker.process.wait()
        self.redis.close()


@contextmanager
def running_fleet(client: Client, url: str, folder: Path, node: pytest.Item) -> Iterator[Fleet]:
    """Give a fleet that ends with the block, and put what its workers wrote into the report of a failed test."""
    fleet = Fleet(client, url, folder)
    try:
        yield fleet
    finally:
        fleet.close()
        for number, worker in enumerate(fleet.workers):
            title = f"log of worker {number}, exit code {worker.process.returncode},"
            node.add_report_section("teardown", title, worker.log[-20_000:])
    crashed = [worker.log for worker in fleet.workers if "Traceback" in worker.log]
    assert not crashed, f"a worker met an error that nobody expects:\n{crashed[0]}"


def worker_environment() -> dict[str, str]:
    """What a worker inherits: nothing of Cordwood's own, and this checkout before an installed package."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CORDWOOD_")}
    roots: Iterable[Path] = (ROOT / "producer", ROOT / "worker", ROOT)
    # One thread each: on a busy machine threads that wait for each other cost far more than they bring.
    alone = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return {**kept, **alone, "PYTHONPATH": os.pathsep.join(map(str, roots)), "HF_HUB_OFFLINE": "1"}
