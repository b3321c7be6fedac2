from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood_worker.collect import Collector
from cordwood_worker.draft import BatchLimits, packed_cost
from tests.worker.collecting import COSTS, brisk, limits, number_row, number_row_at_random, play, steps
from tests.worker.rows import make_row, numbers


@brisk
@given(script=steps, bounds=limits, cost=st.sampled_from(sorted(COSTS)), in_order=st.booleans())
def test_every_row_leaves_exactly_once(
    script: list[int | list[int]], bounds: BatchLimits, cost: str, in_order: bool
) -> None:
    """Whatever the arrivals, nothing is lost and nothing doubled, and the counts end at zero."""
    collector = Collector(bounds, COSTS[cost])
    history = play(script, collector, number_row if in_order else number_row_at_random(7))
    taken = [row for batch in history.batches for row in batch.rows]
    assert sorted(row.index for row in taken) == list(range(len(history.rows)))
    assert all(history.rows[row.index] is row for row in taken)
    assert collector.tokens == 0
    assert collector.due_in_s(0.0) is None


@brisk
@given(script=steps, bounds=limits, cost=st.sampled_from(sorted(COSTS)))
def test_every_batch_keeps_its_budgets(script: list[int | list[int]], bounds: BatchLimits, cost: str) -> None:
    """A batch is within max_rows and max_tokens; only a row alone may be over the tokens."""
    for batch in play(script, Collector(bounds, COSTS[cost])).batches:
        spent = COSTS[cost](len(batch.rows), batch.longest, batch.real_tokens)
        assert 1 <= len(batch.rows) <= bounds.max_rows
        assert spent <= bounds.max_tokens or len(batch.rows) == 1


@brisk
@given(script=steps, bounds=limits)
def test_rows_of_equal_length_leave_in_the_order_they_came(script: list[int | list[int]], bounds: BatchLimits) -> None:
    """Among equals it is first in, first out."""
    history = play(script, Collector(bounds))
    last: dict[int, int] = {}
    for number, at in sorted(history.leaving.items()):
        length = history.rows[number].length
        assert at >= last.get(length, 0)
        last[length] = at


@brisk
@given(script=steps, bounds=limits)
def test_the_oldest_row_is_in_the_next_batch(script: list[int | list[int]], bounds: BatchLimits) -> None:
    """No row is younger than all that is left behind by a batch."""
    history = play(script, Collector(bounds))
    for batch, waiting in zip(history.batches, history.waiting, strict=True):
        assert min(numbers(batch)) < min(waiting, default=len(history.rows))


@brisk
@given(script=steps, bounds=limits, in_order=st.booleans())
def test_no_row_is_bypassed_more_often_than_the_bound(
    script: list[int | list[int]], bounds: BatchLimits, in_order: bool
) -> None:
    """The bound holds for every order of arrival times, and bounds the batches that a row can wait."""
    history = play(script, Collector(bounds), number_row if in_order else number_row_at_random(7))
    bypasses = history.bypasses()
    assert max(bypasses.values(), default=0) <= bounds.max_bypass
    if in_order:
        elders = Counter(number for waiting in history.waiting for number in waiting)
        assert all(elders[number] <= bypasses[number] + number for number in elders)


@brisk
@given(script=steps, bounds=limits, cost=st.sampled_from(sorted(COSTS)), seed=st.integers(0, 1_000))
def test_a_budget_that_changes_keeps_all_bounds(
    script: list[int | list[int]], bounds: BatchLimits, cost: str, seed: int
) -> None:
    """Each batch is within the budget of its time, no row is lost, and none is bypassed more often than the bound."""
    rng = random.Random(seed)
    budgets = iter(lambda: rng.randint(1, 150), 0)
    history = play(script, Collector(bounds, COSTS[cost]), budgets=budgets)
    assert sorted(history.leaving) == list(range(len(history.rows)))
    assert max(history.bypasses().values(), default=0) <= bounds.max_bypass
    for batch, most in zip(history.batches, history.budgets, strict=True):
        spent = COSTS[cost](len(batch.rows), batch.longest, batch.real_tokens)
        assert spent <= most or len(batch.rows) == 1


def test_an_overdue_row_leaves_before_all_others() -> None:
    """A stream of short rows that would fit each other better does not keep a long row waiting."""
    collector = Collector(BatchLimits(max_tokens=40, max_rows=4, max_wait_s=0.0, max_bypass=3))
    collector.add([make_row(0, 10, 0.0), make_row(1, 40, 0.1)])
    left: list[list[int]] = []
    for turn in range(6):
        collector.add(make_row(10 + 4 * turn + more, 10, 1.0 + turn) for more in range(4))
        batch = collector.take(100.0)
        assert batch is not None
        left.append(numbers(batch))
    assert [1 in batch for batch in left].index(True) == 1


def test_a_batch_is_due_when_rows_or_tokens_fill_one_or_the_timer_ends() -> None:
    """Each of the three makes it due, and nothing else does."""
    bounds = BatchLimits(max_tokens=50, max_rows=4, max_wait_s=2.0)
    collector = Collector(bounds)
    assert collector.take(5.0) is None
    collector.add([make_row(0, 10, 5.0), make_row(1, 10, 6.0)])
    assert collector.due_in_s(6.5) == 0.5
    assert collector.take(6.5) is None
    collector.add([make_row(2, 10, 6.5)])
    assert collector.due_in_s(6.5) == 0.5, "arrivals do not restart the timer"
    by_time = collector.take(7.0)
    assert by_time is not None
    assert numbers(by_time) == [0, 1, 2]
    collector.add(make_row(number, 5, 7.0) for number in range(4))
    assert collector.due_in_s(7.0) == 0.0
    by_rows = collector.take(7.0)
    assert by_rows is not None
    assert len(by_rows.rows) == 4
    collector.add(make_row(number, 25, 7.0) for number in range(2))
    assert collector.due_in_s(7.0) == 0.0


def test_the_timer_runs_from_the_earliest_arrival_whatever_the_order_of_adding() -> None:
    """Two tokenising threads may swap rows; the older one still sets the timer and is in the batch."""
    collector = Collector(BatchLimits(max_tokens=50, max_rows=2, max_wait_s=1.0))
    collector.add([make_row(0, 5, 3.0), make_row(1, 30, 2.5)])
    assert collector.due_in_s(2.5) == 0.0
    collector = Collector(BatchLimits(max_tokens=50, max_rows=9, max_wait_s=1.0))
    collector.add([make_row(0, 5, 3.0), make_row(1, 30, 2.5)])
    assert collector.due_in_s(3.0) == 0.5
    batch = collector.take(3.5)
    assert batch is not None
    assert 1 in numbers(batch)


def test_flush_takes_what_is_there_before_it_is_due() -> None:
    """Shutdown and burst do not wait for a timer."""
    collector = Collector(BatchLimits(max_tokens=50, max_rows=4, max_wait_s=60.0))
    assert collector.take(0.0, flush=True) is None
    collector.add([make_row(0, 3)])
    assert collector.take(0.0) is None
    batch = collector.take(0.0, flush=True)
    assert batch is not None
    assert numbers(batch) == [0]


def test_a_row_over_the_budget_runs_alone() -> None:
    """It is neither put back for ever nor joined by others, and the others go on."""
    collector = Collector(BatchLimits(max_tokens=64, max_rows=8, max_wait_s=0.0))
    collector.add([make_row(0, 10, 0.0), make_row(1, 200, 0.1), make_row(2, 10, 0.2)])
    batches = [collector.take(1.0), collector.take(1.0), collector.take(1.0)]
    assert [numbers(batch) if batch else None for batch in batches] == [[0, 2], [1], None]


def test_padded_neighbours_are_the_nearest_in_length() -> None:
    """Around the oldest row the closest lengths on both sides are taken, not the next in line."""
    collector = Collector(BatchLimits(max_tokens=84, max_rows=8, max_wait_s=0.0))
    collector.add(make_row(at, length, float(at)) for at, length in enumerate([20, 3, 40, 19, 5, 21, 18]))
    batch = collector.take(10.0)
    assert batch is not None
    assert sorted(row.length for row in batch.rows) == [18, 19, 20, 21]


def test_packed_cost_counts_only_the_tokens() -> None:
    """Without padding a long row and many short ones fit one batch together."""
    collector = Collector(BatchLimits(max_tokens=60, max_rows=20, max_wait_s=0.0), packed_cost)
    collector.add([make_row(0, 40, 0.0), *(make_row(number, 2, 0.1) for number in range(1, 11))])
    batch = collector.take(1.0)
    assert batch is not None
    assert (len(batch.rows), batch.real_tokens) == (11, 60)


def test_rows_of_a_suspect_job_run_at_once_and_never_with_others() -> None:
    """One suspect job per batch, within the same budgets, before ordinary rows; nothing of it waits for a timer."""
    collector = Collector(BatchLimits(max_tokens=40, max_rows=3, max_wait_s=60.0))
    collector.add([make_row(0, 10), make_row(1, 10, job="bad", suspect=True), make_row(2, 10, job="odd", suspect=True)])
    collector.add(make_row(number, 12, job="bad", suspect=True) for number in (3, 4, 5))
    assert (len(collector), collector.tokens) == (6, 66)
    jobs: list[list[str]] = []
    while collector.due_in_s(0.0) == 0.0:
        batch = collector.take(0.0)
        assert batch is not None
        assert batch.padded_tokens <= 40
        jobs.append([row.job_id for row in batch.rows])
    assert jobs == [["bad"] * 3, ["bad"], ["odd"]]
    assert (len(collector), collector.tokens) == (1, 10)
    assert collector.take(0.0) is None


def test_discarded_jobs_leave_no_trace() -> None:
    """All rows of the jobs are gone, ordinary or suspect, and the timer is that of the oldest row left."""
    collector = Collector(BatchLimits(max_tokens=500, max_rows=90, max_wait_s=1.0))
    collector.add(make_row(number, 5 + number % 2, float(number), job=f"j{number // 3}") for number in range(12))
    collector.add([make_row(50, 9, job="s", suspect=True)])
    assert collector.discard(["j0", "j2", "s", "unknown"]) == 7
    assert (len(collector), collector.due_in_s(3.0)) == (6, 1.0)
    batch = collector.take(20.0)
    assert batch is not None
    assert sorted(numbers(batch)) == [3, 4, 5, 9, 10, 11]
    assert (collector.tokens, collector.due_in_s(0.0)) == (0, None)


def test_rows_that_left_are_forgotten_while_an_older_one_waits() -> None:
    """What the collector keeps for its timer is bounded by what is buffered, not by what has passed through."""
    collector = Collector(BatchLimits(max_tokens=10**9, max_rows=10**9, max_wait_s=60.0))
    collector.add([make_row(0, 5, 0.0, job="old")])
    for turn in range(50):
        collector.add(make_row(number, 5, 1.0 + turn, job="young") for number in range(100))
        collector.discard(["young"])
    assert len(collector) == 1
    assert len(collector._lanes["normal"]._arrivals._heap) <= 200
    assert collector.due_in_s(50.0) == 10.0


@brisk
@given(script=steps, bounds=limits, dropped=st.sets(st.integers(0, 60)))
def test_discarding_loses_only_what_was_named(
    script: list[int | list[int]], bounds: BatchLimits, dropped: set[int]
) -> None:
    """What is discarded between two batches never comes out, and all else still does."""
    collector = Collector(bounds)
    lengths = [length for step in script if isinstance(step, list) for length in step]
    collector.add(make_row(number, length, float(number)) for number, length in enumerate(lengths))
    first = collector.take(1e9)
    gone = set(numbers(first)) if first else set()
    collector.discard([f"job-{number}" for number in dropped])
    rest = play([], collector)
    assert sorted(rest.leaving) == sorted(set(range(len(lengths))) - gone - dropped)


@pytest.mark.parametrize(
    "bad", [(0, 1, 0.0, 1), (1, 0, 0.0, 1), (1, 1, -0.1, 1), (1, 1, 0.0, 0), (1, 1, float("nan"), 1)]
)
def test_limits_that_allow_no_batch_are_refused(bad: tuple[int, int, float, int]) -> None:
    """A budget of nothing would keep rows for ever."""
    with pytest.raises(ValueError, match="limits of a batch"):
        BatchLimits(*bad)


@pytest.mark.parametrize(
    ("worth", "first"), [(float("inf"), [0, 1, 2]), (200.0, [0, 1, 2]), (50.0, [0, 1]), (0.0, [0, 1])]
)
def test_a_row_whose_padding_costs_more_than_a_batch_of_its_own_waits_for_one(worth: float, first: list[int]) -> None:
    """A row of 100 beside two of 10 pads 180 tokens; a tenth of its own length is always accepted."""
    collector = Collector(BatchLimits(1000, 10, 0.0))
    collector.add([make_row(0, 10), make_row(1, 11), make_row(2, 100)])
    batch = collector.take(0.0, flush=True, worth=worth)
    assert batch is not None
    assert sorted(numbers(batch)) == first
