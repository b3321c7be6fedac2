"""Taking turns: an asyncio client with very many waits asks the server a few things at once, not thousands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from cordwood.errors import ServerUnavailable

AT_ONCE: Final = 16

_T = TypeVar("_T")


class Turns:
    """Lets `AT_ONCE` calls go at once; the others stand in line, where no timeout of a connection runs.

    A call that finds no server fails for all that stood in line behind it: each would wait as long for the same.
    """

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(AT_ONCE)
        self._failures = 0
        self._why = ""

    async def take(self, call: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Make the call when it is its turn; raises what it raises."""
        failures_before = self._failures
        async with self._places:
            if self._failures != failures_before:
                raise ServerUnavailable(self._why)
            try:
                return await call()
            except ServerUnavailable as error:
                self._failures, self._why = self._failures + 1, str(error)
                raise
