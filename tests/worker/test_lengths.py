"""Running means of how long jobs are."""

from __future__ import annotations

import pytest

from cordwood_worker.lengths import MEMORY, Lengths


def test_before_any_job_nothing_is_known() -> None:
    """As 0.0, which nobody takes for a length."""
    lengths = Lengths()
    assert (lengths.tokens_per_job, lengths.tokens_per_hint) == (0.0, 0.0)


def test_what_jobs_are_of_late_counts() -> None:
    """After many jobs of another kind those of before are forgotten."""
    lengths = Lengths()
    for _ in range(100):
        lengths.note(10, 5)
    assert lengths.tokens_per_job == pytest.approx(10)
    assert lengths.tokens_per_hint == pytest.approx(2)
    for _ in range(10 * MEMORY):
        lengths.note(100, 100)
    assert lengths.tokens_per_job == pytest.approx(100, rel=1e-3)
    assert lengths.tokens_per_hint == pytest.approx(1, rel=1e-3)
