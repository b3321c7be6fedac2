from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import redis
from click.testing import CliRunner, Result

from cordwood import Client
from cordwood.cli import cli
from cordwood.cli.session import EXIT_ERROR, EXIT_NO_SUCH_JOB
from cordwood_worker.cli import cli as worker_cli
from tests.docs.markdown import README, ROOT, codes, commands, table
from tests.waiting import wait_until

TEXT = README.read_text("utf-8")
LOOKING = [list(words) for words in dict.fromkeys(map(tuple, commands(TEXT, "cordwood"))) if "server" not in words]
HELP_EXAMPLE = re.compile(r"^  Example:\n    (cordwood.*)$", re.MULTILINE)
STOP_S = 20.0


def leaves(group: click.Group, *above: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of every command that is not a group."""
    for name, command in sorted(group.commands.items()):
        if isinstance(command, click.Group):
            yield from leaves(command, *above, name)
        else:
            yield (*above, name)


def call(url: str, *words: str) -> Result:
    """Run the command line in this process."""
    return CliRunner(env={"CORDWOOD_REDIS_URL": url}).invoke(cli, words)


@pytest.fixture
def used_url(served_url: str) -> str:
    """A served queue in which the job of the examples was done."""
    with Client(served_url) as client:
        client.submit("one text under an ID of our own", job_id="page-17")
        client.wait("page-17", timeout_s=30)
    return served_url


def test_every_command_is_in_the_readme() -> None:
    """In the table, in the console block with an example, and no other is."""
    there = {" ".join(words) for words in leaves(cli)}
    named = {row[0].strip("`").removeprefix("cordwood ") for row in table(TEXT, "command", "shows")}
    shown = {name for name in there for words in commands(TEXT, "cordwood") if name in " ".join(words)}
    assert named == there
    assert shown == there


@pytest.mark.parametrize(("program", "group"), [("cordwood", cli), ("cordwood-worker", worker_cli)])
def test_every_command_has_help_with_an_example_that_is_one(program: str, group: click.Group) -> None:
    """The example stands on a line of its own, and its arguments are known."""
    for words in leaves(group):
        text = CliRunner().invoke(group, [*words, "--help"]).output
        example = HELP_EXAMPLE.search(text)
        assert example is not None, text
        assert example[1].split()[0] == program
        assert all(word in example[1].split() for word in words)
        asked = CliRunner().invoke(group, [*example[1].split()[1:], "--help"])
        assert asked.exit_code == 0, asked.output


@pytest.mark.parametrize("words", LOOKING, ids=" ".join)
def test_each_example_looks_and_prints_json_too(used_url: str, words: list[str]) -> None:
    """It ends with 0, prints something, and as JSON one value."""
    plain = call(used_url, *words)
    assert plain.exit_code == 0, plain.output
    assert plain.output.strip()
    as_json = call(used_url, *words, "--json")
    assert as_json.exit_code == 0, as_json.output
    value: Any = json.loads(as_json.output)
    assert "embed" in as_json.output or value["job_id"] == "page-17"


def test_looking_changes_nothing(redis_url: str, redis_client: redis.Redis) -> None:
    """Every example leaves every key as it was: those of a queue with a job that waits, and of an empty server."""
    for words in LOOKING:
        call(redis_url, *words)
    assert redis_client.dbsize() == 0
    with Client(redis_url) as client:
        client.submit("a text", job_id="page-17")
        before = redis_client.execute_command("DEBUG", "DIGEST")
        for words in LOOKING:
            assert call(redis_url, *words).exit_code == 0
        assert redis_client.execute_command("DEBUG", "DIGEST") == before
        client.cancel("page-17")


def test_the_exit_codes_are_those_of_the_readme(redis_url: str) -> None:
    """1 for a setting at fault, 2 for wrong usage, 3 for a job that is not there; each is told in the text."""
    missing = call(redis_url, "job", "show", "no-such-job")
    assert missing.exit_code == EXIT_NO_SUCH_JOB
    assert call(redis_url, "queue", "no-such-command").exit_code == click.UsageError.exit_code
    assert EXIT_ERROR == 1
    said = "0 done, 1 the server or a setting is at fault, 2 wrong usage, 3 no such job"
    assert said in " ".join(TEXT.split())
    assert said in " ".join((cli.help or "").split())


def test_the_server_runs_in_the_foreground_until_it_is_told_to_stop(tmp_path: Path) -> None:
    """The example of the README: it says where it is, applications find it there, and SIGTERM ends it with 0."""
    [words] = [line for line in commands(TEXT, "cordwood") if "server" in line and "--data-dir" in line]
    log = tmp_path / "log"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CORDWOOD_")}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "cordwood.cli", *words],
            cwd=tmp_path,
            env={**kept, "PYTHONPATH": str(ROOT / "producer")},
            stderr=output,
        )
    try:
        wait_until(
            lambda: process.poll() is not None or "is ready" in log.read_text("utf-8"),
            description="the server is ready",
            timeout_s=30,
        )
        url = re.search(r"unix://\S+", log.read_text("utf-8"))
        assert url is not None, log.read_text("utf-8")
        with redis.Redis.from_url(url[0]) as client:
            assert client.ping()
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_S) == 0
    finally:
        process.kill()
        process.wait()


def test_flags_that_the_readme_names_are_there() -> None:
    """Those of both command lines."""
    known = {
        flag for group in (cli, worker_cli) for command in (group, *group.commands.values()) for flag in flags(command)
    }
    named = {code.split()[0] for code in codes(TEXT) if re.fullmatch(r"--[a-z][a-z-]*", code)}
    assert named
    assert named <= known | {"--json"}


def flags(command: click.Command) -> Iterator[str]:
    """Yield the flags of a command."""
    for parameter in command.params:
        yield from parameter.opts
