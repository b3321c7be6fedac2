"""A server and a worker process on it, as a fleet of one has them, for as long as a block lasts."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.own_engine import QUEUE
from benchmarks.processes import await_ready, running
from cordwood.connection import connect
from cordwood.embedded import EmbeddedServer
from cordwood.inspection import look_at_queue
from cordwood.keys import queue_keys

if TYPE_CHECKING:
    from cordwood.connection import SyncRedis

HEARTBEAT_TTL_S: Final = 120.0
"""A worker that is frozen while a queue is filled must not be taken for dead."""
LOG: Final = "worker.log"


@dataclass(frozen=True, slots=True)
class Served:
    """Where the server is, a connection to it, the worker's process, and a folder for logs."""

    url: str
    redis: SyncRedis
    worker: subprocess.Popen[str]
    folder: Path


@contextmanager
def serving(table: Mapping[str, str | int]) -> Iterator[Served]:
    """Start a server that writes through every second, and a worker with a queue's settings.

    The worker has registered when the block begins: its model is loaded and warmed up. Raises ChildGone if it has not.
    """
    with (
        tempfile.TemporaryDirectory(prefix="cwb-") as name,
        EmbeddedServer(Path(name) / "data") as server,
        connect(server.url) as redis,
    ):
        folder = Path(name)
        config = folder / "worker.toml"
        lines = [f"heartbeat_ttl_s = {HEARTBEAT_TTL_S}", f"[queues.{QUEUE}]"]
        config.write_text("\n".join([*lines, *(f"{key} = {json.dumps(value)}" for key, value in table.items())]))
        command = ["-m", "cordwood_worker", "run", "--config", str(config), "--redis-url", server.url]
        with running(command, folder / LOG) as worker:
            await_ready(worker, folder / LOG, lambda: look_at_queue(redis, queue_keys(QUEUE)).workers > 0)
            yield Served(server.url, redis, worker, folder)
