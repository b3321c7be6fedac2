"""The collector where rows have lanes and deadlines."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from cordwood.keys import LANES
from cordwood_worker.batch import Row
from cordwood_worker.collect import Collector
from cordwood_worker.draft import BatchLimits, packed_cost
from cordwood_worker.lanes import LanePolicy
from tests.worker.collecting import COSTS, brisk, limits, play, steps
from tests.worker.rows import make_row, numbers

policies = st.sampled_from(["6:3:1", "1:1:1", "1:2:9", "strict"]).map(LanePolicy.parse)


def row_of_any_kind(seed: int, *, deadlines: bool = True) -> Callable[[int, int], Row]:
    """Rows of any lane, of which half have a deadline."""
    rng = random.Random(seed)

    def make(number: int, length: int) -> Row:
        deadline_s = rng.choice([inf, rng.random()]) if deadlines else inf
        return make_row(number, length, float(number), lane=rng.choice(LANES), deadline_s=deadline_s)

    return make


@brisk
@given(script=steps, bounds=limits, cost=st.sampled_from(sorted(COSTS)), policy=policies, seed=st.integers(0, 1_000))
def test_lanes_and_deadlines_keep_all_bounds(
    script: list[int | list[int]], bounds: BatchLimits, cost: str, policy: LanePolicy, seed: int
) -> None:
    """Nothing is lost or doubled, every budget is kept, and no row is bypassed in its lane beyond the bound."""
    collector = Collector(bounds, COSTS[cost], policy)
    history = play(script, collector, row_of_any_kind(seed))
    taken = [row for batch in history.batches for row in batch.rows]
    assert sorted(row.index for row in taken) == list(range(len(history.rows)))
    assert all(history.rows[row.index] is row for row in taken)
    assert (collector.tokens, collector.due_in_s(0.0), collector.oldest_s, collector.deadline_s) == (0, None, inf, inf)
    assert max(history.bypasses().values(), default=0) <= bounds.max_bypass
    for batch in history.batches:
        spent = COSTS[cost](len(batch.rows), batch.longest, batch.real_tokens)
        assert 1 <= len(batch.rows) <= bounds.max_rows
        assert spent <= bounds.max_tokens or len(batch.rows) == 1


@brisk
@given(script=steps, bounds=limits, policy=policies, seed=st.integers(0, 1_000))
def test_equals_leave_in_the_order_they_came(
    script: list[int | list[int]], bounds: BatchLimits, policy: LanePolicy, seed: int
) -> None:
    """Rows of one lane and one length, where none has a deadline."""
    history = play(script, Collector(bounds, policy=policy), row_of_any_kind(seed, deadlines=False))
    last: dict[tuple[str, int], int] = {}
    for number, at in sorted(history.leaving.items()):
        equals = history.rows[number].lane, history.rows[number].length
        assert at >= last.get(equals, 0)
        last[equals] = at


@brisk
@given(script=steps, policy=policies, seed=st.integers(0, 1_000), rows=st.integers(1, 8))
def test_each_batch_has_the_most_urgent_row_of_a_lane(
    script: list[int | list[int]], policy: LanePolicy, seed: int, rows: int
) -> None:
    """Where nothing is overdue, that is the row of the earliest deadline, or without any the oldest."""
    bounds = BatchLimits(max_tokens=100, max_rows=rows, max_wait_s=0.0, max_bypass=10_000)
    history = play(script, Collector(bounds, policy=policy), row_of_any_kind(seed))

    def urgency(row: Row) -> tuple[float, float]:
        return row.deadline_s, row.arrived_s

    for batch, waiting in zip(history.batches, history.waiting, strict=True):
        left = [history.rows[number] for number in waiting]
        lanes = {row.lane for row in batch.rows}
        firsts = [
            min(urgency(row) for row in batch.rows if row.lane == lane)
            <= min((urgency(row) for row in left if row.lane == lane), default=(inf, inf))
            for lane in lanes
        ]
        assert any(firsts)


@brisk
@given(script=steps, bounds=limits, seed=st.integers(0, 1_000))
def test_strict_lets_no_batch_go_without_the_highest_lane(
    script: list[int | list[int]], bounds: BatchLimits, seed: int
) -> None:
    """As long as it has a row, whatever else is due."""
    history = play(script, Collector(bounds, policy=LanePolicy(strict=True)), row_of_any_kind(seed))
    for batch, waiting in zip(history.batches, history.waiting, strict=True):
        left = {history.rows[number].lane for number in waiting}
        taken = {row.lane for row in batch.rows}
        highest = next(lane for lane in LANES if lane in left | taken)
        assert highest in taken


def test_lanes_with_a_backlog_share_the_tokens_by_weight() -> None:
    """Over some hundred batches of mixed lengths, to a few parts in a hundred."""
    rng = random.Random(3)
    collector = Collector(BatchLimits(max_tokens=512, max_rows=64, max_wait_s=0.0), packed_cost)
    served, number = Counter[str](), 0
    for _ in range(400):
        for lane in LANES:
            while collector._lanes[lane].tokens < 4096:
                collector.add([make_row(number, rng.randint(4, 120), float(number), lane=lane)])
                number += 1
        batch = collector.take(1e9)
        assert batch is not None
        for row in batch.rows:
            served[row.lane] += row.length
    total = sum(served.values())
    assert [round(served[lane] / total, 1) for lane in LANES] == [0.6, 0.3, 0.1]


def test_a_row_of_a_lane_that_had_none_is_in_one_of_the_next_two_batches() -> None:
    """A flood of another lane does not keep it, in either direction."""
    for flood, single in (("low", "high"), ("high", "low")):
        collector = Collector(BatchLimits(max_tokens=40, max_rows=4, max_wait_s=0.0))
        for turn in range(30):
            collector.add(make_row(4 * turn + more, 10, 0.0, lane=flood) for more in range(4))
        for _ in range(10):
            collector.take(1.0)
        collector.add([make_row(999, 10, 1.0, lane=single)])
        batches = [collector.take(2.0), collector.take(2.0)]
        assert any(batch and 999 in numbers(batch) for batch in batches)


def test_room_that_a_lane_leaves_is_for_the_others() -> None:
    """A batch goes out full although its leader has but one row, and the neighbours in length come first."""
    collector = Collector(BatchLimits(max_tokens=40, max_rows=8, max_wait_s=0.0))
    collector.add(make_row(number, length, 0.0, lane="low") for number, length in enumerate([30, 7, 11, 10]))
    collector.add([make_row(9, 10, 1.0, lane="high")])
    batch = collector.take(2.0)
    assert batch is not None
    assert numbers(batch) == [9, 3, 2]


def test_the_earliest_deadline_leads_and_those_without_one_come_after() -> None:
    """Among the rows of a lane; a late one still runs."""
    collector = Collector(BatchLimits(max_tokens=10, max_rows=1, max_wait_s=0.0))
    collector.add(
        make_row(number, 10, float(number), deadline_s=deadline_s)
        for number, deadline_s in enumerate([inf, 9.0, 3.0, inf, 4.0])
    )
    assert collector.deadline_s == 3.0
    left = [batch for _ in range(5) if (batch := collector.take(100.0)) is not None]
    assert [numbers(batch)[0] for batch in left] == [2, 4, 1, 0, 3]


def test_deadlines_do_not_starve_a_row_without_one() -> None:
    """After `max_bypass` batches it is overdue, and first."""
    collector = Collector(BatchLimits(max_tokens=10, max_rows=1, max_wait_s=0.0, max_bypass=3))
    collector.add([make_row(0, 10, 0.0)])
    left: list[int] = []
    for number in range(1, 6):
        collector.add([make_row(number, 10, float(number), deadline_s=float(number))])
        batch = collector.take(100.0)
        assert batch is not None
        left += numbers(batch)
    assert left == [1, 2, 3, 0, 4]
