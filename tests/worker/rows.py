"""Rows for the tests of what handles them."""

from __future__ import annotations

from math import inf

from cordwood_worker.batch import Batch, Row, Tokens


def make_row(
    number: int,
    length: int,
    arrived_s: float = 0.0,
    *,
    job: str = "",
    suspect: bool = False,
    lane: str = "normal",
    deadline_s: float = inf,
) -> Row:
    """A row that its job ID tells apart from all others."""
    return Row(job or f"job-{number}", number, Tokens(range(length)), arrived_s, suspect, lane, deadline_s)


def numbers(batch: Batch) -> list[int]:
    """The numbers that `make_row` gave a batch's rows."""
    return [row.index for row in batch.rows]


def text_row(number: int, text: str) -> Row:
    """A row whose tokens are the text's UTF-8 bytes."""
    return Row(f"job-{number}", number, Tokens(text.encode()), 0.0)


def text_of(row: Row) -> str:
    """The text of a `text_row`."""
    return bytes(row.tokens.ids).decode()
