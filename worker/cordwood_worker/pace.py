"""How long a worker takes for what is beside computing, of late. Pure."""

from __future__ import annotations

from typing import Final

MEMORY: Final = 64
"""How many measurements back one counts 1/e of the last."""


class RunningMean:
    """The mean of what was noted, in which old values count for less and less; one thread notes, any may read."""

    def __init__(self, memory: int = MEMORY) -> None:
        self._memory = memory
        self._count = 0
        self._mean = 0.0

    @property
    def mean(self) -> float:
        """The mean; 0.0 before anything was noted."""
        return self._mean

    def note(self, value: float) -> None:
        """Take in a value: at first the plain mean, later each value counts one in `memory`."""
        self._count = min(self._count + 1, self._memory)
        self._mean += (value - self._mean) / self._count


class Pace:
    """Means of late, in seconds.

    `prepare` is from a job's being fetched to its rows' being ready, `gap` from a batch's being there to its
    computation, with what follows the one before, and `store` from a batch's end to its results' being on the server.
    """

    def __init__(self) -> None:
        self.prepare = RunningMean()
        self.gap = RunningMean()
        self.store = RunningMean()
