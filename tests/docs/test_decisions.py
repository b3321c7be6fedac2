"""Facts on which decisions in docs/adr rest, each small enough to be looked at again with every run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Timer

import fakeredis
import pytest
import redis

from tests.private_server import connected, private_server

REPLY_S = 0.2
FROZEN_S = 0.6


def test_one_package_in_two_folders_is_not_found_whole(tmp_path: Path) -> None:
    """0001: where the first folder has an `__init__.py`, Python does not look into the second."""
    for folder, module in (("producer", "__init__"), ("worker", "worker")):
        package = tmp_path / folder / "parted"
        package.mkdir(parents=True)
        (package / f"{module}.py").touch()
    program = [sys.executable, "-c", "import parted, parted.worker"]
    roots = os.pathsep.join(str(tmp_path / folder) for folder in ("producer", "worker"))
    done = subprocess.run(program, env={"PYTHONPATH": roots}, capture_output=True, text=True, check=False)
    assert "No module named 'parted.worker'" in done.stderr


def test_a_repeated_xadd_is_a_second_entry() -> None:
    """0002: redis-py, as it is by default, repeats a command whose reply it did not get in time."""
    with private_server() as server, connected(server) as client:
        impatient = redis.Redis(unix_socket_path=str(server.socket), socket_timeout=REPLY_S)
        impatient.ping()
        assert server.pid is not None
        os.kill(server.pid, signal.SIGSTOP)
        thaw = Timer(FROZEN_S, os.kill, (server.pid, signal.SIGCONT))
        thaw.start()
        try:
            impatient.xadd("stream", {"id": "one"})
        finally:
            thaw.join()
            impatient.close()
        assert len(client.xrange("stream") or ()) > 1


def test_fakeredis_is_not_asked_about_memory() -> None:
    """0003: nor about its settings, so that it cannot show what a full server does."""
    fake = fakeredis.FakeRedis()
    for ask in (fake.info, fake.config_get):
        with pytest.raises(redis.ResponseError, match="unknown command"):
            ask()


def test_xack_does_not_ask_who_holds_an_entry(redis_client: redis.Redis) -> None:
    """0005: whoever names the entry takes it off the list, so that it is no lease."""
    stream, group = "cw:{facts}:lane:normal", "workers"
    entry = redis_client.xadd(stream, {"id": "one"})
    redis_client.xgroup_create(stream, group, id="0")
    redis_client.xreadgroup(group, "holder", {stream: ">"})
    assert redis_client.xack(stream, group, entry) == 1
