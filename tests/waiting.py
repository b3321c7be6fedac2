"""Waiting for something to become true, instead of sleeping and hoping."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, TypeVar

POLL_S: Final = 0.005

_T = TypeVar("_T")


def wait_until(predicate: Callable[[], _T], *, description: str, timeout_s: float = 10.0) -> _T:
    """Call the predicate until it returns something true, and return that.

    Raises TimeoutError with the description after `timeout_s` seconds. An exception of the predicate passes through.
    """
    never = threading.Event()
    deadline_s = time.monotonic() + timeout_s
    while True:
        answer = predicate()
        if answer:
            return answer
        if time.monotonic() >= deadline_s:
            raise TimeoutError(f"waited {timeout_s:g} s in vain until {description}")
        never.wait(POLL_S)
