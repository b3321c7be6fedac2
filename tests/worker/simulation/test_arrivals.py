"""Recorded and made-up traffic."""

from __future__ import annotations

import numpy as np
import pytest

from cordwood.errors import InvalidInput
from cordwood_worker.simulation.arrivals import make_arrivals, read_arrivals


def test_made_up_traffic_has_the_rate_lengths_and_lanes_that_were_asked_for() -> None:
    """Within what chance allows, and the same for the same seed."""
    made = make_arrivals(jobs=20_000, rate=50.0, mean_tokens=60, max_tokens=256, lane_parts=(1, 6, 3), seed=3)
    gaps = np.diff(made.at_s)
    assert len(made) / made.span_s == pytest.approx(50.0, rel=0.03)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.05), "exponential gaps: a Poisson process"
    assert made.tokens.mean() == pytest.approx(60, rel=0.05)
    assert (made.tokens.min(), made.tokens.max()) == (made.tokens.min().clip(1), 256)
    assert np.bincount(made.lanes) / len(made) == pytest.approx([0.1, 0.6, 0.3], abs=0.02)
    again = make_arrivals(jobs=20_000, rate=50.0, mean_tokens=60, max_tokens=256, lane_parts=(1, 6, 3), seed=3)
    assert (again.at_s == made.at_s).all()
    assert (again.tokens == made.tokens).all()


def test_a_recording_is_read_in_order_of_time() -> None:
    """With or without lanes."""
    read = read_arrivals(["at_s,tokens,lane\n", "2.5,10,low\n", "1.0,7,high\n", "1.5,9,\n"])
    assert read.at_s.tolist() == [1.0, 1.5, 2.5]
    assert read.tokens.tolist() == [7, 9, 10]
    assert read.lanes.tolist() == [0, 1, 2]
    assert read_arrivals(["tokens,at_s\n", "3,1\n"]).lanes.tolist() == [1]


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([], "columns"),
        (["at_s,length\n", "1,2\n"], "columns"),
        (["at_s,tokens\n"], "no line"),
        (["at_s,tokens\n", "1,2\n", "soon,2\n"], "line 3"),
        (["at_s,tokens\n", "1\n"], "line 2"),
        (["at_s,tokens\n", "nan,2\n"], "line 2"),
        (["at_s,tokens\n", "1,0\n"], "line 2"),
        (["at_s,tokens,lane\n", "1,2,again\n"], "line 2"),
        (["at_s,tokens,lane\n", "1,2,low,more\n"], "line 2"),
        (["at_s,tokens\n", "1,10000000000000000000\n"], "1000000 tokens"),
        (["at_s,tokens\n", "1e300,1\n"], "line 2"),
    ],
)
def test_what_is_no_recording_is_refused_with_its_line(lines: list[str], why: str) -> None:
    """And what is wrong with it."""
    with pytest.raises(InvalidInput, match=why):
        read_arrivals(lines)


def test_the_same_jobs_come_faster() -> None:
    """Half the time between them is twice the rate."""
    made = make_arrivals(jobs=10, rate=1.0, mean_tokens=60, max_tokens=256, lane_parts=(0, 1, 0), seed=1)
    assert np.diff(made.faster(2.0).at_s) == pytest.approx(np.diff(made.at_s) / 2)
