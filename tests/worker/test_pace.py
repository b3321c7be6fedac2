"""Means of late."""

from __future__ import annotations

import pytest

from cordwood_worker.pace import MEMORY, Pace, RunningMean


def test_at_first_it_is_the_plain_mean() -> None:
    """And 0.0 before anything."""
    mean = RunningMean()
    assert mean.mean == 0.0
    for value in (1.0, 2.0, 6.0):
        mean.note(value)
    assert mean.mean == pytest.approx(3.0)


def test_what_was_long_ago_is_forgotten() -> None:
    """Each of a worker's means for itself."""
    pace = Pace()
    pace.gap.note(100.0)
    for _ in range(20 * MEMORY):
        pace.gap.note(1.0)
    assert pace.gap.mean == pytest.approx(1.0, rel=1e-3)
    assert pace.store.mean == 0.0
