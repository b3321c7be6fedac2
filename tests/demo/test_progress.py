"""Progress without a terminal is a few plain lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from demo.progress import PLAIN_LINES, shown_progress

if TYPE_CHECKING:
    import pytest


def test_a_run_without_a_terminal_prints_a_few_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """The last one says that all is done."""
    with shown_progress(1_000, "embedded") as advance:
        for _ in range(1_000):
            advance()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == PLAIN_LINES
    assert lines[-1] == "embedded: 1000 of 1000"


def test_fewer_things_than_lines_are_told_one_by_one(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is said twice."""
    with shown_progress(2, "embedded") as advance:
        advance()
        advance()
    assert capsys.readouterr().out.splitlines() == ["embedded: 1 of 2", "embedded: 2 of 2"]
