"""What workers say of themselves, and how long jobs take by it."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.forecast import Capacity, capacity_of, served_in_s
from cordwood.keys import AGAIN, LANES

LEARNED: dict[str, Any] = {
    "tokens_per_s": 1000.0,
    "tokens_per_hint": 2.0,
    "tokens_per_job": 50,
    "cost": {"token_s": 0.001, "row_s": 0.01, "square_s": 0.0, "batch_s": 0.1},
    "lane_weights": "2:1:1",
}


def test_workers_add_up_and_what_they_learned_is_averaged() -> None:
    """One that has learned nothing yet counts as the others."""
    capacity = capacity_of([LEARNED, {**LEARNED, "tokens_per_s": 3000.0, "tokens_per_job": 150}, {"tokens_per_s": 0.0}])
    assert (capacity.workers, capacity.tokens_per_s, capacity.tokens_per_job) == (3, 6000.0, 100.0)
    assert capacity.lane_weights == "2:1:1"
    assert capacity.drain_s(600) == pytest.approx(10.0)
    assert capacity.job_s(hint=10) == pytest.approx(0.1 + 0.01 + 0.001 * 2.0 * 10)


@pytest.mark.parametrize(
    "infos",
    [[], [{}], [{**LEARNED, "tokens_per_s": nan}], [{**LEARNED, "tokens_per_job": "50"}], [{**LEARNED, "cost": 7}]],
    ids=["no worker", "nothing said", "not a number", "a text", "no cost"],
)
def test_what_cannot_be_read_counts_as_not_said(infos: list[dict[str, Any]]) -> None:
    """Nobody's garbage makes a prediction, or an error."""
    capacity = capacity_of(infos)
    assert capacity.drain_s(0) == 0.0
    if not infos or infos[0].get("cost") != 7:
        assert not capacity.is_known
        assert capacity.drain_s(5) is None
    assert Capacity().lane_weights == capacity_of([{"lane_weights": "6:3"}]).lane_weights == "6:3:1"


def test_lanes_share_by_weight_and_leave_their_part_to_the_others() -> None:
    """High has 6 of 10 parts while all have work; low has all when it is alone."""
    backlog = {"high": 600.0, "normal": 300.0, "low": 100.0}
    assert [served_in_s(lane, backlog, 100.0, "6:3:1") for lane in LANES] == pytest.approx([10.0, 10.0, 10.0])
    backlog = {"high": 60.0, "normal": 300.0, "low": 0.0}
    assert [served_in_s(lane, backlog, 100.0, "6:3:1") for lane in LANES] == pytest.approx([0.9, 3.6, 0.0])
    assert [served_in_s(lane, backlog, 100.0, "strict") for lane in LANES] == pytest.approx([0.6, 3.6, 3.6])
    assert served_in_s("low", {AGAIN: 50.0}, 100.0, "6:3:1") == pytest.approx(0.5)
    assert served_in_s("low", {}, 0.0, "6:3:1") == inf


@given(st.tuples(*[st.floats(0.0, 1e9)] * 3), st.tuples(*[st.integers(1, 99)] * 3), st.sampled_from(LANES))
def test_no_lane_waits_less_than_for_its_own_or_more_than_for_everybody(
    backlog: tuple[float, ...], weights: tuple[int, ...], lane: str
) -> None:
    """And never longer than its weight's part of the device takes."""
    tokens: dict[str, float] = dict(zip(LANES, backlog, strict=True))
    part = weights[LANES.index(lane)] / sum(weights)
    waited = served_in_s(lane, tokens, 1.0, ":".join(map(str, weights)))
    assert waited >= tokens[lane] * (1 - 1e-6)
    assert waited <= min(sum(backlog), tokens[lane] / part) * (1 + 1e-6) + 1e-6
