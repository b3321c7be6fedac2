"""The long series of random interleavings."""

from __future__ import annotations

import pytest

from cordwood.connection import connect
from tests.interleaving.run import run_seed


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(1000, 1300, 50))
def test_300_long_interleavings_lose_and_double_nothing(redis_url: str, first: int) -> None:
    """Fifty seeds of 500 steps each, six times."""
    client = connect(redis_url)
    for seed in range(first, first + 50):
        run_seed(client, seed)
