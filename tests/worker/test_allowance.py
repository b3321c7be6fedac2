"""What a worker may fetch: its part of the backlog, and room for each lane."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.keys import AGAIN, ALL_LANES, LANES
from cordwood_worker.allowance import allow, fair_room
from cordwood_worker.lanes import LanePolicy

policies = st.sampled_from(["6:3:1", "1:1:1", "strict"]).map(LanePolicy.parse)
capacities = st.integers(2, 200)


def test_an_empty_worker_has_each_lanes_share_and_the_whole() -> None:
    """The shares first, and what a lane leaves of its own is anybody's."""
    allowance = allow(LanePolicy(), {}, 40, 40)
    assert allowance.lanes == {AGAIN: 10, "high": 18, "normal": 9, "low": 3}
    assert allowance.more == 40


@given(policy=policies, capacity=capacities, lane=st.sampled_from(["normal", "low"]))
def test_a_worker_full_of_one_lane_has_room_for_the_highest(policy: LanePolicy, capacity: int, lane: str) -> None:
    """And for retries, so that neither waits for the backlog of another."""
    allowance = allow(policy, {lane: capacity + 4}, 0, capacity)
    assert allowance.more == 0
    assert allowance.lanes["high"] >= 1
    assert allowance.lanes[AGAIN] >= 1


@given(
    policy=policies,
    capacity=capacities,
    steps=st.lists(st.tuples(st.dictionaries(st.sampled_from(ALL_LANES), st.integers(0, 300)), st.integers(0, 60))),
)
def test_it_never_holds_twice_what_it_may(
    policy: LanePolicy, capacity: int, steps: list[tuple[dict[str, int], int]]
) -> None:
    """Whatever the lanes have at each read, and whatever it lets go in between."""
    held = Counter[str]()
    for ready, gone in steps:
        allowance = allow(policy, held, max(0, capacity - held.total()), capacity)
        fetched = Counter({lane: min(count, ready.get(lane, 0)) for lane, count in allowance.lanes.items()})
        left = allowance.more - fetched.total()
        for lane in LANES:
            taken = max(0, min(left, ready.get(lane, 0) - fetched[lane]))
            fetched[lane] += taken
            left -= taken
        held += fetched
        assert held.total() <= 2 * capacity + len(ALL_LANES)
        for lane in list(held.elements())[:gone]:
            held[lane] -= 1


@pytest.mark.parametrize(
    ("depth", "workers", "held", "expected"),
    [
        (0, 4, 0, 1),
        (8, 4, 0, 2),
        (8, 4, 2, 0),
        (9, 4, 2, 1),
        (8, 4, 7, 0),
        (1000, 4, 0, 250),
        (3, 0, 0, 3),
    ],
)
def test_a_part_of_the_backlog_is_an_equal_one_rounded_up(depth: int, workers: int, held: int, expected: int) -> None:
    """A worker that holds nothing may always fetch one, however stale what it knows."""
    assert fair_room(depth, workers, held) == expected


@given(depth=st.integers(0, 2000), workers=st.integers(2, 9), seed=st.randoms(use_true_random=False))
def test_workers_that_take_turns_at_random_leave_nothing_and_share(depth: int, workers: int, seed: Random) -> None:
    """While all of them hold what they fetch none has more than its part, and together they have everything."""
    order = seed.choices(range(workers), k=workers * 60)
    held, ready = [0] * workers, depth
    for worker in [*order, *range(workers)]:
        fetched = min(ready, fair_room(depth, workers, held[worker]))
        held[worker] += fetched
        ready -= fetched
    assert ready == 0
    assert max(held) <= max(1, -(-depth // workers))
