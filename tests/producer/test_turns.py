import asyncio

import pytest

from cordwood.errors import JobNotFound, ServerUnavailable
from cordwood.turns import AT_ONCE, Turns


class Calls:
    """Calls that are under way until they are let go."""

    def __init__(self) -> None:
        self.under_way = 0
        self.most = 0
        self.let_go = asyncio.Event()
        self.error: Exception | None = None

    async def call(self) -> str:
        """One call."""
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await self.let_go.wait()
            if self.error is not None:
                raise self.error
            return "answer"
        finally:
            self.under_way -= 1


async def until_started(calls: Calls, count: int) -> None:
    """Let the loop turn until so many calls are under way."""
    for _ in range(1000):
        if calls.under_way == count:
            return
        await asyncio.sleep(0)
    raise AssertionError(f"{calls.under_way} calls are under way, not {count}")


async def test_only_some_go_at_once_and_all_get_their_answer() -> None:
    """The others stand in line."""
    turns, calls = Turns(), Calls()
    tasks = [asyncio.create_task(turns.take(calls.call)) for _ in range(10 * AT_ONCE)]
    await until_started(calls, AT_ONCE)
    calls.let_go.set()
    assert await asyncio.gather(*tasks) == ["answer"] * 10 * AT_ONCE
    assert calls.most == AT_ONCE


async def test_what_finds_no_server_fails_for_the_line_behind_it_and_not_for_later_ones() -> None:
    """Nobody in line waits for a timeout of his own; whoever comes after tries again."""
    turns, calls = Turns(), Calls()
    tasks = [asyncio.create_task(turns.take(calls.call)) for _ in range(10 * AT_ONCE)]
    await until_started(calls, AT_ONCE)
    calls.error = ServerUnavailable("no answer")
    calls.let_go.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert {str(outcome) for outcome in outcomes} == {"no answer"}
    assert {type(outcome) for outcome in outcomes} == {ServerUnavailable}
    calls.error = None
    assert await turns.take(calls.call) == "answer"


async def test_an_error_of_one_call_is_its_own() -> None:
    """A refused call says nothing about the server."""
    turns, calls = Turns(), Calls()
    failing = asyncio.create_task(turns.take(calls.call))
    await until_started(calls, 1)
    calls.error = JobNotFound("a", "no such job")
    calls.let_go.set()
    with pytest.raises(JobNotFound):
        await failing
    calls.error = None
    assert await turns.take(calls.call) == "answer"


async def test_who_leaves_the_line_or_the_place_keeps_nobody_out() -> None:
    """Cancelled while it waits or while it calls."""
    turns, calls = Turns(), Calls()
    tasks = [asyncio.create_task(turns.take(calls.call)) for _ in range(2 * AT_ONCE)]
    await until_started(calls, AT_ONCE)
    for task in tasks[::2]:
        task.cancel()
    calls.let_go.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes[::2]] == [asyncio.CancelledError] * AT_ONCE
    assert outcomes[1::2] == ["answer"] * AT_ONCE
    again = [asyncio.create_task(turns.take(calls.call)) for _ in range(AT_ONCE)]
    assert await asyncio.gather(*again) == ["answer"] * AT_ONCE
