"""Turns among lanes: by weight, or strictly by rank."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.keys import AGAIN, LANES
from cordwood_worker.lanes import DEFAULT_WEIGHTS, LanePolicy, LaneTurns

MOST_TOKENS = 100
lengths = st.integers(1, MOST_TOKENS)
weights = st.tuples(*[st.integers(1, 9)] * 3).map(lambda three: ":".join(map(str, three)))
some_lanes = st.sets(st.sampled_from(LANES), min_size=1)


@given(st.integers(4, 10_000))
def test_shares_keep_to_the_room_and_starve_nobody(room: int) -> None:
    """A quarter at most for `again`; every lane gets something; high gets the most."""
    counts = LanePolicy().shares(room)
    assert sum(counts.values()) <= room + len(LANES)
    assert counts[AGAIN] <= max(1, room // 4)
    assert min(counts.values()) >= 1
    assert counts["high"] >= counts["normal"] >= counts["low"]


def test_a_strict_policy_gives_all_the_room_to_the_highest_lane() -> None:
    """The others have what it leaves."""
    assert LanePolicy.parse("strict").shares(8) == {AGAIN: 2, "high": 6, "normal": 0, "low": 0}


def test_the_setting_names_the_weights_of_high_normal_and_low() -> None:
    """In that order; the default is that of the settings."""
    assert LanePolicy.parse("6:3:1") == LanePolicy(DEFAULT_WEIGHTS)
    assert LanePolicy.parse("9:1:2").weights == {"high": 9, "normal": 1, "low": 2}


@given(text=weights, tokens=st.lists(lengths, min_size=60, max_size=200))
def test_lanes_that_always_have_work_share_the_tokens_by_weight(text: str, tokens: list[int]) -> None:
    """Tokens divided by weight differ by no more than a batch of each, at every moment."""
    policy = LanePolicy.parse(text)
    turns, served = LaneTurns(policy), Counter[str]()
    for count in tokens:
        lane = turns.choose(LANES)[0]
        turns.charge(lane, count)
        served[lane] += count
        parts = {lane: served[lane] / policy.weights[lane] for lane in LANES}
        for one in LANES:
            for other in LANES:
                allowed = MOST_TOKENS / policy.weights[one] + MOST_TOKENS / policy.weights[other]
                assert abs(parts[one] - parts[other]) <= allowed + 1e-6


@given(text=weights, script=st.lists(st.tuples(some_lanes, lengths), max_size=80))
def test_no_lane_with_work_waits_longer_than_the_weights_say(text: str, script: list[tuple[set[str], int]]) -> None:
    """Whichever lanes come and go: while a lane waits, no other gets more than its weight's part and two batches."""
    policy = LanePolicy.parse(text)
    turns, waiting = LaneTurns(policy), {lane: Counter[str]() for lane in LANES}
    for lanes, tokens in script:
        order = turns.choose(lanes)
        assert sorted(order) == sorted(lanes)
        turns.charge(order[0], tokens)
        for lane in LANES:
            if lane == order[0] or lane not in lanes:
                waiting[lane].clear()
            else:
                waiting[lane][order[0]] += tokens
            for other, served in waiting[lane].items():
                own = MOST_TOKENS * policy.weights[other] / policy.weights[lane]
                assert served <= own + 2 * MOST_TOKENS + 1e-6


def test_a_lane_that_was_idle_neither_gains_nor_owes_by_it() -> None:
    """It has its share from when it comes back, and not the turns that it did not use."""
    turns = LaneTurns(LanePolicy.parse("1:1:1"))
    for _ in range(50):
        turns.charge("low", 10)
    order = list[str]()
    for _ in range(6):
        order.append(turns.choose(["high", "low"])[0])
        turns.charge(order[-1], 10)
    assert order == ["high", "high", "low", "high", "low", "high"], "of equals the higher lane"


def test_strict_serves_a_lower_lane_only_when_the_higher_are_empty() -> None:
    """It may starve, which is what its name says."""
    turns = LaneTurns(LanePolicy.parse("strict"))
    for _ in range(5):
        assert turns.choose(["low", "high"]) == ["high", "low"]
        turns.charge("high", 1000)
    assert turns.choose({"low", "normal"}) == ["normal", "low"]


@pytest.mark.parametrize("lanes", [[], ["again"]])
def test_a_name_that_is_no_lane_has_no_turn(lanes: list[str]) -> None:
    """Retries have the lane of their job."""
    assert LaneTurns(LanePolicy()).choose(lanes) == []
