"""A budget sinks below what did not fit, and rises again by trials that become rare where they fail."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cordwood_worker.budget import FIRST_TRIAL_AFTER, LearnedBudget


def run_batch(budget: LearnedBudget, cost: int, capacity: int) -> int:
    """Run a batch in halves until all fits, and return how many runs did not."""
    failures = 0
    if cost > capacity and cost > 1:
        budget.note_failure(cost)
        failures = 1 + run_batch(budget, (cost + 1) // 2, capacity) + run_batch(budget, cost // 2, capacity)
    return failures


@given(st.integers(min_value=1, max_value=1 << 20), st.integers(min_value=1, max_value=1 << 20))
def test_a_budget_fits_after_a_few_batches(most: int, capacity: int) -> None:
    """Whatever the device holds, and it is never more than half lower than it must be."""
    budget = LearnedBudget(most)
    for _ in range(8):
        run_batch(budget, budget.limit, capacity)
        budget.note_batch()
    assert budget.limit <= max(capacity, 1)
    assert budget.limit >= min(most, capacity) * 3 // 8


def test_nothing_is_learned_while_all_fits() -> None:
    """The limit stays what the settings say."""
    budget = LearnedBudget(500)
    for _ in range(3 * FIRST_TRIAL_AFTER):
        budget.note_batch()
    assert budget.limit == 500


def test_memory_that_was_short_for_a_while_is_used_again() -> None:
    """An eighth more after each thousand batches."""
    budget = LearnedBudget(1_000)
    budget.note_failure(800)
    assert budget.limit == 700
    for _ in range(FIRST_TRIAL_AFTER):
        budget.note_batch()
    assert budget.limit == 787
    for _ in range(5 * FIRST_TRIAL_AFTER):
        budget.note_batch()
    assert budget.limit == 1_000


def test_trials_that_fail_become_rare() -> None:
    """On a device that never has more, 100,000 batches fail a dozen times at most."""
    budget = LearnedBudget(1_000)
    failures = 0
    for _ in range(100_000):
        if budget.limit > 640:
            failures += run_batch(budget, budget.limit, 640)
        budget.note_batch()
    assert 1 < failures <= 12
