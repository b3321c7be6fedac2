"""What this worker holds of its lanes: the bound on how much it fetches, and what it must hand back."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from cordwood_worker.entry import Attempt, Entry

_HINT_WEIGHT: Final = 0.1
"""How much the newest job counts in the running mean of length hints."""


@dataclass(frozen=True, slots=True)
class Room:
    """How much a worker may hold ahead of its device."""

    rows: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Load:
    """What a worker holds of each lane, how many more entries it has room for, of how many, and its releases so far."""

    lanes: Mapping[str, int]
    room: int
    capacity: int
    releases: int

    @property
    def total(self) -> int:
        """How many entries are held."""
        return sum(self.lanes.values())


class Held:
    """The entries between being fetched and being settled. Any thread may call it.

    It keeps invariant 7 for the worker's memory: the fetcher reads no more than `load` and the lanes' shares allow.
    """

    def __init__(self, most: Room) -> None:
        self._most = most
        self._lock = threading.Condition()
        self._entries: dict[tuple[str, str], Entry] = {}
        self._attempts: dict[tuple[str, str], Attempt] = {}
        self._lanes = Counter[str]()
        self._releases = 0
        self._tokens = 0
        self._mean_hint = 64.0
        self._unheld_before: set[tuple[str, str]] = set()

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entries: Iterable[Entry]) -> list[Entry]:
        """Take entries in and return those that were not held already."""
        with self._lock:
            new = [entry for entry in entries if entry.place not in self._entries]
            for entry in new:
                self._entries[entry.place] = entry
                self._lanes[entry.lane] += 1
                self._tokens += entry.hint
                self._mean_hint += _HINT_WEIGHT * (max(1, entry.hint) - self._mean_hint)
            return new

    def begin(self, attempts: Iterable[Attempt]) -> None:
        """Note the tokens of jobs that were started."""
        with self._lock:
            for attempt in attempts:
                if attempt.entry.place in self._entries:
                    self._attempts[attempt.entry.place] = attempt

    def remove(self, entries: Iterable[Entry]) -> None:
        """Let go of entries that were settled, lost or handed back."""
        with self._lock:
            for entry in entries:
                if self._entries.pop(entry.place, None) is not None:
                    self._lanes[entry.lane] -= 1
                    self._tokens -= entry.hint
                    self._attempts.pop(entry.place, None)
            self._releases += 1
            self._lock.notify_all()

    def room(self) -> int:
        """How many more entries may be fetched now, judged by rows and by the mean length of late."""
        with self._lock:
            return self._room()

    def load(self) -> Load:
        """What is held, and what there is room for."""
        with self._lock:
            capacity = max(1, min(self._most.rows, int(self._most.tokens / self._mean_hint)))
            return Load(dict(self._lanes), self._room(), capacity, self._releases)

    def wait_for_release(self, since: Load, timeout_s: float) -> bool:
        """Wait until something was let go since then, at most `timeout_s`; return whether it was."""
        with self._lock:
            return self._lock.wait_for(lambda: self._releases != since.releases, timeout_s)

    def wait_until_gone(self, entry: Entry, timeout_s: float) -> bool:
        """Wait until this entry was let go, at most `timeout_s`; return whether it was."""
        with self._lock:
            self._lock.wait_for(lambda: entry.place not in self._entries, timeout_s)
            return entry.place not in self._entries

    def _room(self) -> int:
        by_rows = self._most.rows - len(self._entries)
        by_tokens = int((self._most.tokens - self._tokens) / self._mean_hint)
        return max(0 if self._entries else 1, min(by_rows, by_tokens))

    def everything(self) -> list[tuple[Entry, str]]:
        """All that is held, each with its token ('' if it was not started)."""
        with self._lock:
            attempts = self._attempts
            return [
                (entry, attempts[place].token if place in attempts else "") for place, entry in self._entries.items()
            ]

    def compare(self, pending: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return pending entries that this worker does not hold and did not hold at the last comparison either.

        Those were in a reply that got lost. One look is not enough: an entry may just be on its way in or out.
        """
        with self._lock:
            unheld = {place for place in pending if place not in self._entries}
            twice = unheld & self._unheld_before
            self._unheld_before = unheld - twice
            return sorted(twice)
