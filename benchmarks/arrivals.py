"""Requests that come when they come: a Poisson process, which does not wait for the answers to earlier ones."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from itertools import accumulate
from typing import TypeVar

_T = TypeVar("_T")


def poisson_times(rate_per_s: float, seconds: float, seed: int) -> list[float]:
    """Return the times of arrival within `seconds`, the gaps between them exponential; the same ones for a seed."""
    draw = random.Random(seed)
    expected = round(rate_per_s * seconds)
    times = list(accumulate(draw.expovariate(rate_per_s) for _ in range(2 * expected + 100)))
    return [time for time in times if time < seconds]


async def open_loop(
    request: Callable[[_T], Awaitable[object]], items: Sequence[_T], times: Sequence[float]
) -> list[float]:
    """Begin a request for each item at its time; return how many seconds after that time each was answered.

    What delays the sender counts too: it is the time since the request was due, not since it was sent.
    """
    loop = asyncio.get_running_loop()
    began_s = loop.time()

    async def answered(item: _T, due_s: float) -> float:
        await asyncio.sleep(began_s + due_s - loop.time())
        await request(item)
        return loop.time() - began_s - due_s

    return await asyncio.gather(*(answered(item, due_s) for item, due_s in zip(items, times, strict=True)))


async def closed_loop(request: Callable[[_T], Awaitable[object]], items: Sequence[_T], width: int) -> float:
    """Keep `width` requests in flight until all items are answered; return how many were per second."""
    loop = asyncio.get_running_loop()
    waiting = iter(items)
    began_s = loop.time()

    async def one_after_the_other() -> None:
        for item in waiting:
            await request(item)

    await asyncio.gather(*(one_after_the_other() for _ in range(width)))
    return len(items) / (loop.time() - began_s)
