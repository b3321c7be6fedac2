"""Facts on which decisions in docs/adr rest, each small enough to be looked at again with every run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from threading import Timer

import fakeredis
import pytest
import redis

from tests.private_server import connected, frozen, private_server

REPLY_S = 0.2
FROZEN_S = 0.6


def test_one_package_in_two_folders_is_not_found_whole(tmp_path: Path) -> None:
    """0001: where the first folder has an `__init__.py`, Python does not look into the second."""
    for folder, module in (("producer", "__init__"), ("worker", "worker")):
        package = tmp_path / folder / "parted"
        package.mkdir(parents=True)
        (package / f"{module}.py").touch()
    path = f"{tmp_path / 'producer'}:{tmp_path / 'worker'}"
    program = [sys.executable, "-c", "import parted, parted.worker"]
    done = subprocess.run(program, env={"PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert "No module named 'parted.worker'" in done.stderr


def test_a_repeated_xadd_is_a_second_entry() -> None:
    """0002: the client library repeats a command whose reply it did not get in time."""
    with private_server() as server:
        impatient = redis.Redis.from_url(server.url, socket_timeout=REPLY_S)
        with connected(server) as client, frozen_for(server, FROZEN_S):
            impatient.xadd("stream", {"id": "one"})
            impatient.close()
            assert int(client.xlen("stream")) > 1  # type: ignore[arg-type]
