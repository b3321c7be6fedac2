from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic.fields import FieldInfo

from cordwood.settings import QueueSettings, Settings
from cordwood_worker.cli import run, simulate
from cordwood_worker.exit_codes import ExitCode
from demo.corpus import PASSAGES
from tests.docs.markdown import README, ROOT, blocks, codes, commands, documents, links, paths, table

TEXT = README.read_text("utf-8")
EXAMPLES = blocks(TEXT, "python")
UNITS = {"_s": "seconds", "_ms": "milliseconds", "_bytes": "bytes", "_tokens": "tokens", "_rows": "rows"}
WRONG_USAGE = 2


def run_example(code: str, url: str, folder: Path) -> str:
    """Run a code block in a process of its own, in which a warning is an error, and return what it printed."""
    roots = os.pathsep.join(str(ROOT / name) for name in ("producer", "worker"))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CORDWOOD_")}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**kept, "PYTHONPATH": roots, "CORDWOOD_REDIS_URL": url},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def shown_default(field: FieldInfo) -> str:
    """Return a default as the tables show it."""
    default = field.get_default(call_default_factory=True)
    if field.is_required():
        return "required"
    if default is None or default == {}:
        return "none"
    return f"{default:g}" if isinstance(default, float) else str(default)


def test_the_blocking_example_runs(served_url: str, tmp_path: Path) -> None:
    """It embeds two texts and gets three outcomes."""
    first, *outcomes = run_example(EXAMPLES[0], served_url, tmp_path).splitlines()
    assert first == "(2, 8) float32"
    assert len(outcomes) == 3
    assert all("[" in line for line in outcomes)


def test_the_asyncio_example_runs(served_url: str, tmp_path: Path) -> None:
    """It submits a job under its own ID and shows what it came to."""
    assert run_example(EXAMPLES[1], served_url, tmp_path).startswith(
        "page-17 (8,) (31,) python:cordwood_worker.testing"
    )


def test_the_examples_are_short() -> None:
    """Ten lines or so each, and there are no others that would not be run."""
    assert len(EXAMPLES) == 2
    assert all(len(example.splitlines()) <= 12 for example in EXAMPLES)


def test_the_demo_is_as_large_as_it_says() -> None:
    """The number of passages."""
    assert f"embeds {PASSAGES:,} passages" in " ".join(TEXT.split())


def test_every_setting_is_in_the_table_with_its_default_and_unit() -> None:
    """In the order of the code; a key's suffix is its unit."""
    rows = table(TEXT, "key", "default", "unit", "read by", "meaning")
    assert [row[0].strip("`") for row in rows] == list(Settings.model_fields)
    for (key, default, unit, readers, meaning), field in zip(rows, Settings.model_fields.values(), strict=True):
        assert default.strip("`") == shown_default(field), key
        suffix = next((end for end in UNITS if key.strip("`").endswith(end)), None)
        assert unit
        assert suffix is None or unit == UNITS[suffix], key
        assert readers in {"client", "worker", "both", "neither"}, key
        assert meaning, key


def test_every_setting_of_a_queue_is_in_the_table() -> None:
    """With its default, in the order of the code."""
    rows = table(TEXT, "key", "default", "meaning")
    assert [row[0].strip("`") for row in rows] == list(QueueSettings.model_fields)
    for (key, default, meaning), field in zip(rows, QueueSettings.model_fields.values(), strict=True):
        assert default.strip("`") == shown_default(field), key
        assert meaning, key


def test_every_exit_code_of_a_worker_is_in_the_table() -> None:
    """The codes of the code, and the one for a wrong command line; the command's help names them too."""
    rows = table(TEXT, "code", "meaning")
    numbers = [int(code) for code, _ in rows]
    assert numbers == sorted({*map(int, ExitCode), WRONG_USAGE})
    assert all(meaning for _, meaning in rows)
    help_text = " ".join((run.help or "").split())
    named = re.findall(r"\b(\d+) [a-z]", help_text.partition("Exit codes:")[2].partition("Example")[0])
    assert [int(number) for number in named] == numbers


def test_the_ways_to_run_a_worker_are_valid_commands() -> None:
    """Their flags are known, and the files that they name are there."""
    lines = [arguments for name, *arguments in commands(TEXT, "cordwood-worker") if name == "run"]
    assert len(lines) >= 3
    for arguments in lines:
        assert run.make_context("run", list(arguments)).params["config"].is_file()


def test_the_ways_to_simulate_a_fleet_are_valid_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their flags are known and their values allowed; the recording is the one made just before."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "arrivals.csv").touch()
    lines = [arguments for name, *arguments in commands(TEXT, "cordwood-worker") if name == "simulate"]
    assert len(lines) >= 3
    for arguments in lines:
        assert simulate.make_context("simulate", list(arguments)).params["queue"] == "embed"


def test_the_make_targets_are_there() -> None:
    """Those in blocks, and those in the text."""
    phony = re.search(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert phony is not None
    named = {code.split()[1] for code in codes(TEXT) if code.startswith("make ")}
    named |= {words[0] for words in commands(TEXT, "make")}
    assert named >= {"demo", "test", "check", "chaos"}
    assert named <= set(phony[1].split())


def test_compose_gives_each_worker_longer_than_its_drain() -> None:
    """Its grace period is above `drain_s`, its command is in the exec form, and it is started again when it ends."""
    compose = (ROOT / "docker-compose.yml").read_text("utf-8")
    worker = compose[compose.index("\n  worker:") :]
    grace = re.search(r"stop_grace_period: (\d+)s", worker)
    drain = re.search(r"^drain_s = ([\d.]+)$", (ROOT / "configs" / "compose.toml").read_text("utf-8"), re.MULTILINE)
    assert grace is not None
    assert drain is not None
    assert float(grace[1]) > float(drain[1])
    assert "init: true" in worker
    assert "restart: unless-stopped" in worker
    assert re.search(r'^ENTRYPOINT \["cordwood-worker"\]$', (ROOT / "Dockerfile").read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize("document", documents(), ids=lambda path: path.name)
def test_what_a_document_points_to_is_there(document: Path) -> None:
    """Links within the project, and files named in the text; of a test, the function too."""
    text = document.read_text("utf-8")
    missing = [target for target in links(text) if not (document.parent / target).exists()]
    for path in paths(text):
        file, _, function = path.partition("::")
        if not (ROOT / file).exists() or (function and f"def {function}(" not in (ROOT / file).read_text("utf-8")):
            missing.append(path)
    assert missing == []
