from __future__ import annotations

import asyncio
from itertools import pairwise
from statistics import mean, pstdev

import pytest

from benchmarks.arrivals import closed_loop, open_loop, poisson_times


def test_arrivals_come_at_the_rate_and_end_in_time() -> None:
    """Sorted, and the same ones for a seed."""
    times = poisson_times(200.0, 50.0, seed=1)
    assert len(times) == pytest.approx(10_000, rel=0.04)
    assert times == sorted(times)
    assert times[0] > 0
    assert times[-1] < 50.0
    assert times == poisson_times(200.0, 50.0, seed=1) != poisson_times(200.0, 50.0, seed=2)


def test_gaps_are_exponential() -> None:
    """Their deviation is their mean, unlike that of a clockwork."""
    times = poisson_times(100.0, 100.0, seed=3)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert mean(gaps) == pytest.approx(0.01, rel=0.05)
    assert pstdev(gaps) == pytest.approx(0.01, rel=0.08)


async def test_an_open_loop_counts_from_when_a_request_was_due() -> None:
    """One that waits for another's answer in the client is as late as it is."""
    lock = asyncio.Lock()

    async def request(hold_s: float) -> None:
        async with lock:
            await asyncio.sleep(hold_s)

    first, second = await open_loop(request, [0.1, 0.0], [0.0, 0.01])
    assert first >= 0.1
    assert second >= first - 0.02


async def test_a_closed_loop_keeps_so_many_in_flight() -> None:
    """Never more, and every item is asked for once."""
    flying: set[int] = set()
    most = 0
    asked: list[int] = []

    async def request(item: int) -> None:
        nonlocal most
        asked.append(item)
        flying.add(item)
        most = max(most, len(flying))
        await asyncio.sleep(0)
        flying.remove(item)

    assert await closed_loop(request, range(20), width=4) > 0
    assert most == 4
    assert sorted(asked) == list(range(20))
