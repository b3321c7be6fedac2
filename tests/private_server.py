"""A real server for one test alone: to be filled, frozen, stopped or limited."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from cordwood.embedded import EmbeddedServer


@contextmanager
def private_server(*arguments: str) -> Iterator[EmbeddedServer]:
    """Run a server with these further arguments while the block lasts; nothing of it is left."""
    folder = Path(tempfile.mkdtemp(prefix="cwt-"))
    try:
        with EmbeddedServer(folder, durable=False, extra=arguments) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def connected(server: EmbeddedServer) -> Iterator[redis.Redis]:
    """A client of the server, with undecoded replies."""
    client = redis.Redis.from_url(server.url)
    try:
        yield client
    finally:
        client.close()


@contextmanager
def frozen(server: EmbeddedServer) -> Iterator[None]:
    """Stop the server's process by SIGSTOP while the block lasts."""
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)
