from __future__ import annotations

from benchmarks.corpus import draw_lengths
from benchmarks.padding import padding_waste


def test_padding_is_at_most_3_percent_with_64_batches_of_lookahead() -> None:
    """The promise for the padded path, kept by the batch former alone."""
    assert 0 < padding_waste(draw_lengths(12_000)) <= 0.03


def test_equal_lengths_are_not_padded() -> None:
    """Whatever the limits."""
    assert padding_waste([62] * 5_000) == 0.0
