from __future__ import annotations

import re
from pathlib import Path

import pytest

from cordwood.keys import queue_keys
from cordwood_worker import worker as worker_module
from tests.docs.figures import FIGURES
from tests.docs.markdown import ARCHITECTURE, DECISIONS, ROOT, codes, table

TEXT = ARCHITECTURE.read_text("utf-8")
SCRIPTS = ROOT / "producer" / "cordwood" / "scripts"
PACKAGES = ("producer/cordwood", "worker/cordwood_worker")
SECTIONS = ("## Context", "## Decision", "## Consequences", "## Alternatives rejected")
NOT_FIELDS = {"id", "n", "go"}
"""Fields of stream entries, and an answer."""


def lua_sources() -> str:
    """Return the text of all scripts and their parts."""
    return "\n".join(path.read_text("utf-8") for path in sorted(SCRIPTS.rglob("*.lua")))


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_is_in_the_table_of_its_package(package: str) -> None:
    """And no other is; a file of no code but its name says what it is as well."""
    section = TEXT.partition(f"### `{package}/`")[2].partition("\n##")[0]
    named = [code for row in table(section, "module", "what it is") for code in codes(row[0])]
    there = {path.relative_to(ROOT / package).as_posix() for path in (ROOT / package).rglob("*.py")}
    assert sorted(named) == sorted(there)


def test_every_script_is_in_the_table_and_every_part_is_named() -> None:
    """With what it does and what a repeated call does."""
    rows = table(TEXT, "script", "what it does", "a repeated call")
    assert sorted(row[0].strip("`") for row in rows) == sorted(path.name for path in SCRIPTS.glob("*.lua"))
    assert all(cell for row in rows for cell in row)
    parts = TEXT.partition("Parts that several scripts share")[2].partition("\n\n")[0]
    assert set(codes(parts)) >= {path.name for path in (SCRIPTS / "lib").glob("*.lua")}


def test_every_key_is_in_the_table() -> None:
    """The fixed ones by name, as a range where they are numbered, and the record."""
    named = {code for row in table(TEXT, "key", "type", "holds") for code in codes(row[0])}
    keys = queue_keys("q")
    there = {key.removeprefix(keys.prefix) for key in keys.fixed}
    numbered = {name for name in there if name.startswith("done:")}
    assert named == (there - numbered) | {min(numbered), max(numbered), "job:<id>"}


def test_every_field_of_a_record_is_in_the_table() -> None:
    """Every short name that a script writes or reads, and no other."""
    named = {code for row in table(TEXT, "field", "written by", "meaning") for code in codes(row[0])}
    used = set(re.findall(r"'([a-z][a-z0-9]?)'", lua_sources()))
    assert named == used - NOT_FIELDS


def test_the_fields_are_written_by_whom_the_table_says() -> None:
    """Each script that is named there exists."""
    writers = {word.strip() for row in table(TEXT, "field", "written by", "meaning") for word in row[1].split(",")}
    assert writers - {"all", "the end"} <= {path.stem for path in SCRIPTS.glob("*.lua")}


def test_the_threads_are_those_that_a_worker_starts() -> None:
    """By name, and with the signal that ends them."""
    source = Path(worker_module.__file__).read_text("utf-8")
    started = set(re.findall(r'\(f?"(\w+)(?:-{queue})?", (?:line|engine)\.\w+, signals\.(\w+)\)', source))
    rows = table(TEXT, "thread", "loop", "ends with", "what it does")
    assert {(row[0].strip("`"), row[2].replace(" ", "_")) for row in rows} == started


def test_all_invariants_have_a_place_and_a_test() -> None:
    """That they exist is the test of what a document points to."""
    rows = table(TEXT, "", "invariant", "kept by", "shown by")
    assert [row[0] for row in rows] == [str(number) for number in range(1, 9)]
    assert all("`producer/" in row[2] or "`worker/" in row[2] for row in rows)
    assert all("`tests/" in row[3] for row in rows)


def test_decisions_are_numbered_without_gaps_and_built_alike() -> None:
    """A context, a decision, its consequences, and what was rejected."""
    files = sorted(DECISIONS.glob("*.md"))
    assert [path.name[:4] for path in files] == [f"{number:04d}" for number in range(1, len(files) + 1)]
    for path in files:
        text = path.read_text("utf-8")
        assert text.startswith(f"# {path.name[:4]}: "), path
        assert [line for line in text.splitlines() if line.startswith("## ")] == list(SECTIONS), path
        assert len(text.split()) <= 600, path


def test_every_figure_that_a_decision_quotes_can_be_measured_again() -> None:
    """By the name that it gives; and none is there that nobody quotes."""
    text = "\n".join(path.read_text("utf-8") for path in DECISIONS.glob("*.md"))
    quoted = set(re.findall(r"python -m tests\.docs\.figures (\w+)", text))
    assert quoted == set(FIGURES)
