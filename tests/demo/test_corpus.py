"""The demo's passages are real, many, different and always the same."""

from __future__ import annotations

import pytest

from demo.corpus import (
    MAX_CHARACTERS,
    MIN_CHARACTERS,
    MODULES,
    PASSAGES,
    CorpusTooSmall,
    clean_paragraphs,
    load_passages,
    read_module,
)

DOCSTRING = """Compare two sequences and say, line by line,
    what has to change in the first one.

    >>> Examples are code, not prose, whatever their length may be, so they are left out.

    - Items of lists are left out too, as they say little when they stand alone.

    Too short.

    An introduction to a list of some length, which is prose and ends in a colon:
"""


def test_there_are_enough_passages_and_each_is_one_line_of_prose() -> None:
    """At least 2,000 different ones, with their source, of a length that suits the model."""
    passages = load_passages()
    assert len(passages) == PASSAGES >= 2_000
    assert len({passage.text for passage in passages}) == PASSAGES
    assert all(MIN_CHARACTERS <= len(passage.text) <= MAX_CHARACTERS for passage in passages)
    assert not any("\n" in passage.text for passage in passages)
    assert all(passage.source.startswith(MODULES) for passage in passages)


def test_the_same_python_has_the_same_passages_in_the_same_order() -> None:
    """So two runs of the demo can be compared."""
    assert load_passages(20, ["queue", "threading"]) == load_passages(20, ["queue", "threading"])


def test_paragraphs_are_cleaned() -> None:
    """Prose only, with its lines joined."""
    assert list(clean_paragraphs(DOCSTRING)) == [
        "Compare two sequences and say, line by line, what has to change in the first one.",
        "An introduction to a list of some length, which is prose and ends in a colon:",
    ]


def test_methods_are_named_by_their_class() -> None:
    """A source can be looked up."""
    sources = {passage.source for passage in read_module("difflib")}
    assert "difflib.SequenceMatcher" in sources
    assert any(source.startswith("difflib.SequenceMatcher.") for source in sources)


def test_a_module_that_is_not_there_has_no_passages() -> None:
    """Other versions of Python lack some of them."""
    assert list(read_module("no.such.module")) == []


def test_too_few_passages_are_an_error() -> None:
    """Rather than a demo of less than it says."""
    with pytest.raises(CorpusTooSmall):
        load_passages(1_000, ["queue"])
