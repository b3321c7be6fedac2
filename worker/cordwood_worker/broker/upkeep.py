"""Keeping a queue whole: signs of life, renewal, taking over from the dead, what is due, and repair."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from cordwood.calls import split
from cordwood.keys import ALL_LANES, QUEUES
from cordwood_worker.broker.connection import QueueConnection
from cordwood_worker.broker.lanes import acceptable_id, read_hint
from cordwood_worker.entry import Entry

SWEPT_PER_CALL: Final = 100
REPAIRED_PER_CALL: Final = 500


@dataclass(frozen=True, slots=True)
class BeatAnswer:
    """What the server said to a sign of life. Times are in ms of Redis time."""

    now_ms: int
    paused: bool
    grace_ms: int
    workers: int
    """How many workers show signs of life, this one among them."""


@dataclass(frozen=True, slots=True)
class Takeover:
    """Entries taken over from dead workers, and those found deleted, as `lane:entry ID`."""

    entries: tuple[Entry, ...]
    deleted: tuple[str, ...]


class Upkeep:
    """The scripts that any worker runs for the good of all. None of them depends on which worker runs it."""

    def __init__(self, queue: QueueConnection, *, heartbeat_s: float, ttl_s: float, clock: Callable[[], float]) -> None:
        self._queue = queue
        self._beat_ms = round(heartbeat_s * 1000)
        self._ttl_ms = round(ttl_s * 1000)
        self._clock = clock
        self._spec: Mapping[str, str | int] = {}

    def announce(self, spec: Mapping[str, str | int]) -> None:
        """Write the queue's name and what serves it."""
        self._spec = spec
        fields = [item for pair in spec.items() for item in pair]
        self._queue.commands(("SADD", QUEUES, self._queue.keys.queue))
        self._queue.commands(("HSET", self._queue.keys.named("spec"), *fields))

    def announce_again(self) -> None:
        """Write again what was announced, as after a flush."""
        if self._spec:
            self.announce(self._spec)

    def beat(self, info: bytes) -> BeatAnswer:
        """Show that this worker lives."""
        args = (self._queue.consumer, self._ttl_ms, self._beat_ms, info)
        now_ms, paused, grace_ms, workers = self._queue.call("beat", (), args)
        return BeatAnswer(now_ms, bool(paused), grace_ms, workers)

    def withdraw(self) -> None:
        """Show that this worker lives no more, and remove its consumer if it holds nothing."""
        self._queue.commands(("ZREM", self._queue.keys.named("workers"), self._queue.consumer))
        self.reap()

    def renew(self) -> list[tuple[str, str]]:
        """Renew all that is pending for this worker; return it as lanes and entry IDs."""
        reply = self._queue.call("renew", (), (self._queue.consumer,))
        return [(lane, entry.decode()) for lane, entries in zip(ALL_LANES, reply, strict=True) for entry in entries]

    def reclaim(self, most: int) -> Takeover:
        """Take over up to `most` entries of workers that show no sign of life."""
        reply = self._queue.call("reclaim", (), (self._queue.consumer, self._ttl_ms, most))
        entries: list[Entry] = []
        deleted: list[str] = []
        for lane, entry_id, job_id, hint, found in reply:
            name = lane.decode()
            if found:
                entry = Entry(name, entry_id.decode(), acceptable_id(job_id), read_hint(hint), self._clock())
                entries.append(entry)
            else:
                deleted.append(f"{name}:{entry_id.decode()}")
        return Takeover(tuple(entries), tuple(deleted))

    def promote(self) -> int:
        """Make delayed jobs ready whose time has come; return how many."""
        first = self._first("delayed")
        return int(self._queue.call("promote", first, first)) if first else 0

    def expire(self) -> int:
        """End overdue jobs; return how many."""
        first = self._first("expiring")
        answers: list[bytes] = self._queue.call("expire", first, first) if first else []
        return answers.count(b"expired")

    def reap(self) -> list[str]:
        """Remove consumers that hold nothing and show no sign of life; return their names."""
        return [name.decode("utf-8", "replace") for name in self._queue.call("reap", (), (self._ttl_ms,))]

    def repair(self, *, mend: bool = True) -> dict[str, str]:
        """Find records without their place and, with `mend`, give it back; return what was found by job ID.

        Walks all records of the queue by SCAN: for the start of a worker, after a lost group, and by hand.
        """
        found: dict[str, str] = {}
        cursor = -1
        while cursor != 0:
            command = ("SCAN", max(0, cursor), "MATCH", self._queue.keys.job_pattern, "COUNT", REPAIRED_PER_CALL)
            cursor, names = self._queue.commands(command)[0]
            ids = [self._queue.keys.job_id(name.decode("utf-8", "replace")) for name in names]
            for chunk in split(ids, REPAIRED_PER_CALL):
                answers = self._queue.call("repair", chunk, (int(mend), *chunk))
                found.update(
                    (job_id, answer.decode())
                    for job_id, answer in zip(chunk, answers, strict=True)
                    if answer != b"whole"
                )
        return found

    def _first(self, index: str) -> list[str]:
        """Read the job IDs that are due first; whether any is due by now the script decides, by the server's clock.

        Members that no producer could have written are removed: no record is theirs, and they would stand at the head.
        """
        key = self._queue.keys.named(index)
        (found,) = self._queue.commands(("ZRANGE", key, 0, SWEPT_PER_CALL - 1))
        foreign = [raw for raw in found if not acceptable_id(raw)]
        if foreign:
            self._queue.commands(("ZREM", key, *foreign))
        return [job_id for job_id in map(acceptable_id, found) if job_id]
