"""A fleet of one: an embedded server and a worker process, in a temporary folder, gone when the block ends."""

from __future__ import annotations

import os
import subprocess
import sysconfig
import tempfile
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Final

from cordwood.connection import connect
from cordwood.embedded import EmbeddedServer
from cordwood.inspection import look_at_queue
from cordwood.keys import queue_keys

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cordwood.connection import SyncRedis

QUEUE: Final = "embed"
CONFIG: Final = Path(__file__).parents[1] / "configs" / "local.toml"
READY_S: Final = 120.0
STOP_S: Final = (3.0, 5.0)
"""How long the worker may take after a first and after a second SIGTERM."""
_LOOK_S: Final = 0.05
_LOG_TAIL_BYTES: Final = 2_000


class WorkerGone(Exception):
    """The worker process ended; the message has its exit code and the end of its log."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """Where the server is, the connection to look at it, and the worker's process and log."""

    url: str
    redis: SyncRedis
    worker: subprocess.Popen[bytes]
    log: Path

    def check(self) -> None:
        """Raise WorkerGone if the worker has ended."""
        code = self.worker.poll()
        if code is not None:
            tail = self.log.read_bytes()[-_LOG_TAIL_BYTES:].decode("utf-8", "replace")
            raise WorkerGone(f"the worker ended with exit code {code}; the end of its log:\n{tail.strip()}")

    def await_ready(self) -> None:
        """Wait until the worker has loaded its model and registered; raise WorkerGone if it ends before."""
        deadline_s, pause = monotonic() + READY_S, Event()
        while look_at_queue(self.redis, queue_keys(QUEUE)).workers == 0:
            self.check()
            if monotonic() > deadline_s:
                raise WorkerGone(f"the worker was not ready after {READY_S:g} s, see {self.log}")
            pause.wait(_LOOK_S)


@contextmanager
def running_fleet() -> Iterator[Fleet]:
    """Start the server and the worker, and stop both whatever ends the block: the worker drains first."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cordwood-demo-")))
        server = stack.enter_context(EmbeddedServer(folder / "data"))
        redis = connect(server.url)
        stack.callback(redis.close)
        log = folder / "worker.log"
        worker = _start_worker(server.url, log)
        stack.callback(_stop, worker)
        yield Fleet(server.url, redis, worker, log)


def _start_worker(url: str, log: Path) -> subprocess.Popen[bytes]:
    """Start `cordwood-worker run` in a session of its own, so that a Ctrl-C reaches it through its owner only."""
    program = Path(sysconfig.get_path("scripts")) / "cordwood-worker"
    command = [str(program), "run", "--config", str(CONFIG), "--queue", QUEUE, "--redis-url", url]
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, "TOKENIZERS_PARALLELISM": "false"},
        )


def _stop(worker: subprocess.Popen[bytes]) -> None:
    """Ask it to drain, then to hand everything back at once, then kill it."""
    try:
        for patience_s in STOP_S:
            worker.terminate()
            with suppress(subprocess.TimeoutExpired):
                worker.wait(patience_s)
                return
    finally:
        worker.kill()
        worker.wait()
