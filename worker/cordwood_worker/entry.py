"""Entries of the lanes, and the attempts that are made at their jobs."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry that this consumer was given. `job_id` is '' where the entry names no acceptable job.

    `hint` is the job's length in tokens, estimated; `arrived_s` is the worker's monotonic time.
    """

    lane: str
    entry_id: str
    job_id: str
    hint: int
    arrived_s: float

    @property
    def place(self) -> tuple[str, str]:
        """The lane and entry ID, which no other entry has."""
        return (self.lane, self.entry_id)


@dataclass(frozen=True, slots=True)
class Attempt:
    """A job that was started: whoever has its token may end it, and nobody else (invariant 3).

    `lane` is the job's own, where its entry may be in `again`; `deadline_s` is the worker's monotonic time.
    """

    entry: Entry
    token: str
    number: int
    suspect: bool
    payload: bytes
    lane: str = "normal"
    deadline_s: float = inf

    @property
    def job_id(self) -> str:
        """The job's ID."""
        return self.entry.job_id


@dataclass(frozen=True, slots=True)
class Refusal:
    """An entry that `start` made no attempt of: `reason` is suspect, lost, stale, expired, dead, ghost or bad."""

    entry: Entry
    reason: str
