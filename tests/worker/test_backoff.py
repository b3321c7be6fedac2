"""The delay before another attempt."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from cordwood_worker.backoff import FIRST_MS, LONGEST_MS, full_jitter_ms


@given(attempt=st.integers(0, 10_000), seed=st.integers())
def test_a_delay_lies_between_nothing_and_the_attempts_bound(attempt: int, seed: int) -> None:
    """Doubling with each attempt up to a minute."""
    bound = min(LONGEST_MS, FIRST_MS * 2 ** min(max(0, attempt - 1), 20))
    assert 0 <= full_jitter_ms(attempt, Random(seed)) <= bound


def test_delays_are_spread_over_their_whole_range() -> None:
    """Or those that failed together would come back together."""
    delays = [full_jitter_ms(3, Random(seed)) for seed in range(300)]
    assert min(delays) < 0.05 * 4 * FIRST_MS
    assert max(delays) > 0.95 * 4 * FIRST_MS
