import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from cordwood import Client, codec
from cordwood.cli import cli
from cordwood.inspection import COUNTERS
from tests.clients import opened
from tests.finishing import HandWorker
from tests.private_server import frozen, private_server

Run = Callable[..., Result]

LOOKS = (["queue", "ls"], ["queue", "show", "embed"], ["worker", "ls"], ["job", "show", "mine"])
HOSTILE = "\x1b[31mred\x1b[0m\x07\r\nsecond line"


def invoke(*arguments: str) -> Result:
    """Run the command in this process, without the environment's settings."""
    return CliRunner(env={"CORDWOOD_REDIS_URL": None}).invoke(cli, arguments)


@pytest.fixture
def run(redis_url: str) -> Run:
    """Run the command against the test's server."""
    return lambda *arguments: invoke("--redis-url", redis_url, *arguments)


@pytest.fixture
def client(redis_url: str) -> Iterator[Client]:
    """A client."""
    with opened("blocking", redis_url) as made:
        yield made


@pytest.fixture
def worker(redis_url: str) -> Iterator[HandWorker]:
    """A worker by hand."""
    with HandWorker(redis_url) as made:
        yield made


def commands(group: click.Group, *names: str) -> Iterator[tuple[str, ...]]:
    """The names of every group and command."""
    yield names
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, *names, name)
        else:
            yield (*names, name)


@pytest.mark.parametrize("names", [pytest.param(names, id=" ".join(names) or "cordwood") for names in commands(cli)])
def test_every_command_has_help(names: tuple[str, ...]) -> None:
    """A sentence on what it does, and on the commands themselves an example; `-h` is the same."""
    shown = invoke(*names, "--help")
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert shown.stdout == invoke(*names, "-h").stdout
    assert shown.stdout.startswith(" ".join(("Usage: cordwood", *names)))
    last: Any = cli
    for name in names:
        last = last.commands[name]
    assert last.help.strip()
    if not isinstance(last, click.Group) or last is cli:
        example = shown.stdout.partition("Example:\n")[2].splitlines()[0]
        assert re.fullmatch(rf" +cordwood .*{' '.join(names)}.*", example)


def test_the_exit_codes_are_documented() -> None:
    """In the help of the command itself."""
    assert "Exit codes: 0 done, 1 the server or a setting is at fault, 2 wrong usage, 3 no such job." in " ".join(
        invoke("--help").stdout.split()
    )
    assert invoke("--version").stdout.startswith("cordwood, version ")


def test_an_empty_server_has_no_queues_and_no_workers(run: Run, redis_client: Any) -> None:
    """That is no error; a job is not there with the code for that. Nothing is created by looking."""
    assert (run("queue", "ls").exit_code, run("worker", "ls").exit_code) == (0, 0)
    assert json.loads(run("queue", "ls", "--json").stdout) == []
    assert json.loads(run("worker", "ls", "--json").stdout) == []
    shown = run("queue", "show", "embed")
    assert (shown.exit_code, "ready" in shown.stdout) == (0, True)
    missing = run("job", "show", "mine")
    assert (missing.exit_code, missing.stdout) == (3, "")
    assert missing.stderr == "cordwood: no job mine in queue embed: never submitted, expired or wiped\n"
    assert list(redis_client.scan_iter()) == []


def test_queues_are_listed_with_what_they_hold(run: Run, client: Client, worker: HandWorker) -> None:
    """As a table for people and as JSON for programs."""
    worker.upkeep.announce({"task": "embed", "model": "some-model"})
    running = client.submit_many(["x"] * 3)
    worker.take_exactly(3)
    waiting = [client.submit("y", lane="high"), client.submit("y", delay_s=1000)]
    listed = run("queue", "ls")
    assert listed.exit_code == 0
    heading, row = listed.stdout.splitlines()
    assert heading.split("  ")[0] == "QUEUE"
    cells = row.split()
    assert cells[:4] == ["embed", "1", "3", "1"]
    assert cells[-3:] == ["no", "embed", "some-model"]
    shown = run("queue", "show", "embed")
    assert "counted submitted" in shown.stdout
    assert any(line.split() == ["high", "1", "0", "0"] for line in shown.stdout.splitlines())
    (view,) = json.loads(run("queue", "ls", "--json").stdout)
    assert {**view, "oldest_age_ms": 0} == {
        **json.loads(run("queue", "show", "embed", "--json").stdout),
        "oldest_age_ms": 0,
    }
    assert (view["queue"], view["ready"], view["in_flight"], view["delayed"]) == ("embed", 1, 3, 1)
    client.cancel([*running, *waiting])


def test_json_has_the_same_keys_in_every_state(run: Run, client: Client, worker: HandWorker) -> None:
    """A program that reads it needs no special cases: empty, waiting, running, failed."""
    empty = json.loads(run("queue", "show", "embed", "--json").stdout)
    job_id = client.submit("x")
    queued = json.loads(run("job", "show", job_id, "--json").stdout)
    attempts = worker.take_exactly(1)
    worker.fail(attempts, "ValueError", "no good")
    failed = json.loads(run("job", "show", job_id, "--json").stdout)
    used = json.loads(run("queue", "show", "embed", "--json").stdout)
    assert list(empty) == list(used)
    assert list(empty["stats"]) == list(used["stats"]) == list(COUNTERS)
    assert list(queued) == list(failed)
    assert (queued["state"], failed["state"], failed["error"]) == ("queued", "failed", "no good")
    assert (queued["payload_bytes"] > 0, queued["result_bytes"]) == (True, 0)


def test_a_jobs_text_and_result_are_never_shown(run: Run, client: Client, worker: HandWorker) -> None:
    """But what became of it, when and by whom."""
    job_id = client.submit("a secret text", metadata={"name": "also secret"})
    for _ in range(2):
        for output in (run("job", "show", job_id), run("job", "show", job_id, "--json")):
            assert output.exit_code == 0
            assert "secret" not in output.stdout
        worker.finish(worker.take())
    shown = dict(line.split(maxsplit=1) for line in run("job", "show", job_id).stdout.splitlines() if " " in line)
    assert (shown["state"], shown["attempts"], shown["worker"]) == ("done", "1", worker.consumer)
    assert shown["finished"].endswith("+00:00")


def test_workers_are_listed_with_what_they_say(run: Run, client: Client, worker: HandWorker) -> None:
    """Of all queues or of one; a worker that says nothing is listed too."""
    client.cancel(client.submit("x"))
    worker.upkeep.beat(codec.pack({"model": "m1", "held": 3, "device": "cpu", "secret": "x"}, max_bytes=1000))
    worker.redis.zadd(worker.keys.named("workers"), {"silent": 1})
    listed = run("worker", "ls")
    assert listed.stdout.splitlines()[0].split()[:2] == ["WORKER", "QUEUE"]
    assert listed.stdout.splitlines()[1].split()[:2] == [worker.consumer, "embed"]
    views = json.loads(run("worker", "ls", "--json").stdout)
    assert [list(view) for view in views] == [list(views[0])] * 2
    assert (views[0]["worker"], views[0]["model"], views[0]["held"]) == (worker.consumer, "m1", 3)
    assert "secret" not in views[0]
    assert (views[1]["worker"], views[1]["model"]) == ("silent", None)
    assert json.loads(run("worker", "ls", "--queue", "other", "--json").stdout) == []


def test_control_characters_of_others_do_not_reach_the_terminal(run: Run, client: Client, worker: HandWorker) -> None:
    """Errors, names of workers and of models are shown with escapes, each on its one line."""
    worker.upkeep.announce({"task": "embed", "model": HOSTILE})
    worker.upkeep.beat(codec.pack({"model": HOSTILE, "held": HOSTILE}, max_bytes=1000))
    worker.redis.zadd(worker.keys.named("workers"), {HOSTILE: 1})
    job_id = client.submit("x")
    worker.fail(worker.take_exactly(1), HOSTILE, HOSTILE)
    looks = [["queue", "ls"], ["queue", "show", "embed"], ["worker", "ls"], ["job", "show", job_id]]
    for look in looks:
        text = run(*look).stdout
        assert r"\x1b[31mred" in text
        assert not {"\x1b", "\x07", "\r"} & set(text)
        assert not any(line.startswith("second") for line in text.splitlines())
        as_json = run(*look, "--json").stdout
        assert as_json.isascii()
        assert "\x1b" not in as_json


@pytest.mark.parametrize("look", LOOKS, ids=" ".join)
def test_without_a_server_there_is_one_line_and_an_exit_code(look: list[str], tmp_path: Path) -> None:
    """Within six seconds, for a URL that leads nowhere and for a folder where none runs, as text and as JSON."""
    began = time.monotonic()
    for arguments in (["--redis-url", f"unix://{tmp_path}/no.sock"], ["--data-dir", f"{tmp_path}/no"]):
        for json_flag in ([], ["--json"]):
            output = invoke(*arguments, *look, *json_flag)
            assert (output.exit_code, output.stdout) == (1, "")
            assert output.stderr.startswith("cordwood: no ")
            assert output.stderr.count("\n") == 1
    assert time.monotonic() - began < 6
    assert "set CORDWOOD_REDIS_URL, or start one with `cordwood server`" in output.stderr


def test_a_frozen_server_is_reported_within_six_seconds() -> None:
    """Whoever looks while something is wrong wants to know soon."""
    with private_server() as server, frozen(server):
        began = time.monotonic()
        output = invoke("--redis-url", server.url, "queue", "ls")
        assert time.monotonic() - began < 6
    assert (output.exit_code, output.stdout, output.stderr.count("\n")) == (1, "", 1)


@pytest.mark.parametrize("look", LOOKS[1:], ids=" ".join)
def test_a_key_of_a_wrong_type_is_one_line(run: Run, redis_client: Any, look: list[str]) -> None:
    """No traceback, and the key is named."""
    keys = {"queue": "lane:normal", "worker": "workers", "job": "job:mine"}
    redis_client.sadd("cw:queues", "embed")
    redis_client.set(f"cw:{{embed}}:{keys[look[0]]}", "text", ex=60)
    output = run(*look)
    assert (output.exit_code, output.stdout, output.stderr.count("\n")) == (1, "", 1)
    assert keys[look[0]] in output.stderr


def test_names_and_ids_that_cannot_be_are_wrong_usage(run: Run) -> None:
    """So is everything that the command line does not know; glob characters match nothing."""
    for name in ("two words", "*", "[ab]", "{x}", "naïve", ""):
        output = run("queue", "show", name)
        assert (output.exit_code, output.stderr.count("\n")) == (2, 1)
    assert run("job", "show", "two words").exit_code == 2
    assert run("job", "show").exit_code == 2
    assert run("no-such-command").exit_code == 2
    assert run("worker", "ls", "--queue", "two words").exit_code == 2


def test_a_wrong_setting_is_one_line_that_names_it(tmp_path: Path) -> None:
    """Whether it comes from a flag or a file."""
    config = tmp_path / "cordwood.toml"
    config.write_text("lease_s = -1\nmax_depht = 5\n")
    output = invoke("--config", str(config), "queue", "ls")
    assert (output.exit_code, output.stderr.count("\n")) == (1, 1)
    assert "lease_s" in output.stderr
    assert "did you mean max_depth?" in output.stderr
    output = invoke("--redis-url", "http://:secret@host", "queue", "ls")
    assert (output.exit_code, output.stderr.count("\n")) == (1, 1)
    assert "secret" not in output.stderr


@pytest.mark.leaves_jobs
def test_no_command_changes_anything(run: Run, client: Client, worker: HandWorker) -> None:
    """Invariant 8, for every command that looks."""
    worker.beat()
    client.submit_many(["x"] * 5)
    worker.finish(worker.take_exactly(3)[:1])
    client.submit("mine", job_id="mine", expires_s=0.001)
    before = {key: (worker.redis.dump(key), worker.redis.expiretime(key)) for key in worker.redis.scan_iter()}
    for look in (*LOOKS, ["queue", "show", "other"], ["job", "show", "unknown"]):
        run(*look)
        run(*look, "--json")
    after = {key: (worker.redis.dump(key), worker.redis.expiretime(key)) for key in worker.redis.scan_iter()}
    assert after == before
