"""How long jobs are of late, in tokens and against the hints of their producers. Pure."""

from __future__ import annotations

from typing import Final

MEMORY: Final = 1024
"""How many jobs back a job counts 1/e of the last one."""


class Lengths:
    """Running sums in which old jobs count for less and less; one thread notes, any may read."""

    def __init__(self) -> None:
        self._jobs = 0.0
        self._tokens = 0.0
        self._hints = 0.0

    @property
    def tokens_per_job(self) -> float:
        """The mean tokens of a job; 0.0 before any."""
        return self._tokens / self._jobs if self._jobs else 0.0

    @property
    def tokens_per_hint(self) -> float:
        """How many tokens a token of length hint comes to; 0.0 before any job."""
        return self._tokens / self._hints if self._hints else 0.0

    def note(self, tokens: int, hint: int) -> None:
        """Note that a job had so many tokens and this length hint."""
        kept = 1.0 - 1.0 / MEMORY
        self._jobs = kept * self._jobs + 1.0
        self._tokens = kept * self._tokens + tokens
        self._hints = kept * self._hints + max(1, hint)
