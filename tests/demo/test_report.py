"""Figures and answers as the demo prints them."""

from __future__ import annotations

import numpy as np

from demo.corpus import Passage
from demo.report import HITS, Rates, answer_lines


def test_rates_are_per_second_and_padding_is_a_share() -> None:
    """100 texts in 2 s, 8 rows a batch, a fifth of the cells empty."""
    stats = {"batches": 10, "rows": 80, "tokens": 800, "padded_tokens": 1_000}
    texts, tokens, rows, padding = (line.split()[0] for line in Rates(100, 2.0, stats).lines())
    assert (texts, tokens, rows, padding) == ("50.0", "400.0", "8.0", "20.0")


def test_rates_of_nothing_divide_by_nothing() -> None:
    """A run without counters is printed too."""
    assert len(Rates(0, 1.0, {}).lines()) == 4


def test_the_nearest_passages_come_first() -> None:
    """By the scalar product of unit vectors."""
    vectors = np.eye(4, dtype=np.float32)
    passages = [Passage("source", f"passage {index}") for index in range(4)]
    question = np.array([[0.1, 0.7, 0.2, 0.0]], dtype=np.float32)
    lines = answer_lines(["which?"], question, passages, vectors)
    assert lines[1] == "which?"
    assert [line.rsplit(" ", 1)[1] for line in lines[2:]] == ["1", "2", "0"][:HITS]
