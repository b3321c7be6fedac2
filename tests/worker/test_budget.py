"""A budget sinks below what did not fit, and rises again by trials that become rare where they fail."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cordwood_worker.budget import FIRST_TRIAL_AFTER, LearnedBudget


def run_in_halves(budget: LearnedBudget, cost: int, capacity: int) -> int:
    """Run rows that cost 1 each, in halves until all fits, and return how many runs did not."""
    fits = cost <= capacity
    budget.note_run(cost, fits=fits, alone=cost == 1)
    if fits or cost == 1:
        return 0 if fits else 1
    halves = ((cost + 1) // 2, cost // 2)
    return 1 + sum(run_in_halves(budget, half, capacity) for half in halves)


def run_batch(budget: LearnedBudget, cost: int, capacity: int) -> int:
    """Run one batch to its end, and return how many of its runs did not fit."""
    failures = run_in_halves(budget, cost, capacity)
    budget.note_batch()
    return failures


def fail_alone(budget: LearnedBudget, cost: int) -> None:
    """Run a batch of one row that does not fit."""
    budget.note_run(cost, fits=False, alone=True)
    budget.note_batch()


@given(st.integers(min_value=1, max_value=1 << 20), st.integers(min_value=1, max_value=1 << 20))
def test_a_budget_fits_after_a_few_batches(most: int, capacity: int) -> None:
    """Whatever the device holds, and it is never more than half lower than it must be."""
    budget = LearnedBudget(most)
    for _ in range(8):
        run_batch(budget, budget.limit, capacity)
    assert budget.limit <= max(capacity, 1)
    assert budget.limit >= min(most, capacity) * 3 // 8


def test_nothing_is_learned_while_all_fits() -> None:
    """The limit stays what the settings say."""
    budget = LearnedBudget(500)
    for _ in range(3 * FIRST_TRIAL_AFTER):
        run_batch(budget, 500, 500)
    assert budget.limit == 500


def test_memory_that_was_short_for_a_while_is_used_again() -> None:
    """An eighth more after each thousand batches."""
    budget = LearnedBudget(1_000)
    budget.note_run(800, fits=False, alone=False)
    budget.note_run(400, fits=True, alone=False)
    budget.note_run(400, fits=True, alone=False)
    budget.note_batch()
    assert budget.limit == 700
    for _ in range(FIRST_TRIAL_AFTER):
        run_batch(budget, 400, 1_000)
    assert budget.limit == 787
    for _ in range(5 * FIRST_TRIAL_AFTER):
        run_batch(budget, 400, 1_000)
    assert budget.limit == 1_000


def test_trials_that_fail_become_rare() -> None:
    """On a device that never has more, 100,000 full batches fail a dozen times at most."""
    budget = LearnedBudget(1_000)
    failures = 0
    for _ in range(100_000):
        failures += run_batch(budget, budget.limit, 640)
    assert 1 < failures <= 12


def test_the_limit_does_not_sink_below_what_is_known_to_fit() -> None:
    """A run of 950 fitted, so one of 1,000 that does not fit costs no more than the difference."""
    budget = LearnedBudget(1_000)
    run_batch(budget, 950, 960)
    run_batch(budget, 1_000, 960)
    assert budget.limit == 950


def test_a_shortage_of_a_moment_teaches_nothing() -> None:
    """One batch does not fit that fitted before and fits again: the limit stays."""
    budget = LearnedBudget(1_000)
    for _ in range(3):
        run_batch(budget, 1_000, 1_000)
        run_batch(budget, 100, 60)
    assert budget.limit == 1_000


def test_a_shortage_that_lasts_is_believed_at_the_second_batch() -> None:
    """Also where much larger batches fitted before, and then it takes a few batches as at the start."""
    budget = LearnedBudget(4_096)
    run_batch(budget, 4_096, 4_096)
    for _ in range(9):
        run_batch(budget, budget.limit, 700)
    assert 700 * 3 // 8 <= budget.limit <= 700


def test_a_small_batch_that_fits_again_does_not_end_the_doubt() -> None:
    """Only one as large as the one that failed does; otherwise the large ones would fail for ever."""
    budget = LearnedBudget(1_000)
    run_batch(budget, 1_000, 1_000)
    for _ in range(9):
        run_batch(budget, budget.limit, 300)
        run_batch(budget, 10, 300)
    assert budget.limit <= 300


def test_a_row_that_never_fits_costs_only_itself() -> None:
    """Invariant 5: in company of rows that fit, and alone, however often it comes."""
    budget = LearnedBudget(4_096)
    for _ in range(20):
        for cost in (4_096, 2_048, 1_024, 512):
            budget.note_run(cost, fits=False, alone=False)
            budget.note_run(cost // 2, fits=True, alone=False)
        budget.note_run(5, fits=False, alone=True)
        budget.note_batch()
        fail_alone(budget, 5)
    assert budget.limit == 4_096


def test_a_batch_of_one_row_teaches_nothing() -> None:
    """Not even where nothing is known yet: no limit makes that row smaller."""
    budget = LearnedBudget(1_000)
    fail_alone(budget, 5)
    assert budget.limit == 1_000
