"""Whether a device that is free had better wait for more rows."""

from __future__ import annotations

from math import exp, inf
from typing import Final

MEMORY_S: Final = 0.25
"""Time constant with which arrivals are forgotten."""


class Patience:
    """The rate of arrivals of late, and what it says about waiting.

    Waiting leaves the device idle. It pays if another job is to be expected within `max_wait_s`, and if the jobs that
    come in a second save more than a second by joining a batch instead of making their own: the rate of arrivals,
    averaged with weights that decay with e^(-age / MEMORY_S), times the shorter of the two is 1 or more. Otherwise a
    job on an idle worker would pay for the wait and nobody would gain by it.
    """

    def __init__(self, max_wait_s: float) -> None:
        self._max_wait_s = max_wait_s
        self._weight = 0.0
        self._noted_s = 0.0

    def note(self, jobs: int, now_s: float) -> None:
        """Count jobs that arrive now."""
        self._weight = self._weight_at(now_s) + jobs
        self._noted_s = max(now_s, self._noted_s)

    def pays(self, now_s: float, saved_s: float = inf) -> bool:
        """Whether to wait for another job, if joining a batch saves it `saved_s` of the device's time."""
        return self._weight_at(now_s) / MEMORY_S * min(self._max_wait_s, saved_s) >= 1.0

    def _weight_at(self, now_s: float) -> float:
        return self._weight * exp(-max(0.0, now_s - self._noted_s) / MEMORY_S)
