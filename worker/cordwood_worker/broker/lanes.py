"""Reading the lanes: the one place where entries are delivered to this consumer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from redis.exceptions import ResponseError

from cordwood import connection
from cordwood.errors import CordwoodError, InvalidInput
from cordwood.job import check_job_id
from cordwood.keys import ALL_LANES, GROUP, LANES
from cordwood.scripts import MAX_JOBS_PER_CALL
from cordwood_worker.allowance import Allowance
from cordwood_worker.broker.connection import QueueConnection
from cordwood_worker.entry import Entry

MAX_HINT: Final = 1 << 20


class GroupMissing(CordwoodError):
    """A stream or its group was deleted: create it again, then look for records whose entries are gone."""


class LaneReader:
    """Reads entries from a queue's lanes, on a connection of its own that never repeats a read by itself."""

    def __init__(self, queue: QueueConnection, clock: Callable[[], float]) -> None:
        self._queue = queue
        self._clock = clock
        self.tenants_wait = False
        """Whether jobs waited for their tenant's turn at the last read: then `pump` may let some in."""

    def create_groups(self) -> bool:
        """Create each lane's group, from the start of its stream; return whether any was missing."""
        with connection.translated_errors():
            created = [self._create_group(lane) for lane in ALL_LANES]
        return any(created)

    def read(self, allowance: Allowance) -> list[Entry]:
        """Read what is there: of each lane what it may send, then the higher lanes first up to what is left in all.

        Raises GroupMissing after a flush or a deletion.
        """
        entries = self._read_each(allowance.lanes)
        left = allowance.more - len(entries)
        if left > 0:
            found = Counter(entry.lane for entry in entries)
            entries += self.read_in_turn([lane for lane in LANES if found[lane] >= allowance.lanes.get(lane, 0)], left)
        return entries

    def wait(self, most: int, block_ms: int) -> list[Entry]:
        """Wait up to `block_ms` until a lane has entries, and read up to `most` of each; raises as `read` does."""
        return self._entries(self._execute(self._group_read(most, ("BLOCK", block_ms), ALL_LANES)))

    def depth(self) -> int:
        """Return how many entries all lanes have, ready or in a worker's hands."""
        with connection.translated_errors(), self._queue.redis.pipeline(transaction=False) as pipeline:
            for lane in ALL_LANES:
                pipeline.xlen(self._queue.keys.lane(lane))
            return sum(pipeline.execute())

    def pump(self, window: int, *, idle: bool = False) -> int:
        """Let jobs whose tenant's turn it is into the lanes, up to `window` jobs in each; return how many.

        For an `idle` worker, which holds nothing, one is let into a lane whatever the others hold.
        """
        keys = self._queue.keys
        with connection.translated_errors(), self._queue.redis.pipeline(transaction=False) as pipeline:
            for lane in LANES:
                pipeline.xlen(keys.lane(lane))
            lengths = dict(zip(LANES, pipeline.execute(), strict=True))
            for lane in LANES:
                pipeline.zrange(keys.aside(lane), 0, min(max(1, window - lengths[lane]), MAX_JOBS_PER_CALL) - 1)
            waiting = dict(zip(LANES, pipeline.execute(), strict=True))
        return sum(self._pump_lane(lane, window, members, idle=idle) for lane, members in waiting.items() if members)

    def _pump_lane(self, lane: str, window: int, members: Sequence[bytes], *, idle: bool) -> int:
        foreign = [raw for raw in members if not acceptable_id(raw)]
        if foreign:
            # No producer could have written them: they would stand at the head for ever.
            self._execute(("ZREM", self._queue.keys.aside(lane), *foreign))
        job_ids = [job_id for job_id in map(acceptable_id, members) if job_id]
        return int(self._queue.call("pump", job_ids, (lane, window, int(idle), *job_ids)))

    def read_in_turn(self, lanes: Iterable[str], most: int) -> list[Entry]:
        """Read these lanes one after the other, up to `most` entries in all; raises as `read` does."""
        entries: list[Entry] = []
        for lane in lanes:
            if len(entries) < most:
                entries += self._entries(self._execute(self._group_read(most - len(entries), (), [lane])))
        return entries

    def fetch(self, places: list[tuple[str, str]]) -> list[Entry]:
        """Read entries that are pending for this consumer already; those deleted meanwhile are acknowledged."""
        entries: list[Entry] = []
        for lane, entry_id in places:
            stream = self._queue.keys.lane(lane)
            found = self._execute(("XRANGE", stream, entry_id, entry_id))
            if found and found[0][1] is not None:
                entries.append(self._entry(lane, *found[0]))
            else:
                self._execute(("XACK", stream, GROUP, entry_id))
        return entries

    def _create_group(self, lane: str) -> bool:
        try:
            self._queue.redis.xgroup_create(self._queue.keys.lane(lane), GROUP, id="0", mkstream=True)
        except ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise
            return False
        return True

    def _read_each(self, counts: Mapping[str, int]) -> list[Entry]:
        """Read each lane up to its count, in one round trip."""
        reads = [self._group_read(count, (), [lane]) for lane, count in counts.items() if count > 0]
        if not reads:
            return []
        with _missing_groups_told(), self._queue.redis.pipeline(transaction=False) as pipeline:
            for read in reads:
                pipeline.execute_command(*read)
            # Rides along, so that a queue without tenants pays no round trip to learn that none waits.
            pipeline.execute_command("EXISTS", *map(self._queue.keys.aside, LANES))
            *replies, waiting = pipeline.execute()
        self.tenants_wait = waiting > 0
        return [entry for reply in replies for entry in self._entries(reply)]

    def _group_read(self, count: int, block: tuple[str | int, ...], lanes: Iterable[str]) -> tuple[str | int, ...]:
        streams = [self._queue.keys.lane(lane) for lane in lanes]
        head = ("XREADGROUP", "GROUP", GROUP, self._queue.consumer, "COUNT", count)
        return (*head, *block, "STREAMS", *streams, *(">" for _ in streams))

    def _execute(self, command: tuple[str | int | bytes, ...]) -> Any:
        with _missing_groups_told():
            return self._queue.redis.execute_command(*command)

    def _entries(self, reply: list[Any] | None) -> list[Entry]:
        lanes = {self._queue.keys.lane(lane).encode(): lane for lane in ALL_LANES}
        return [
            self._entry(lanes[stream], entry_id, fields)
            for stream, delivered in reply or []
            for entry_id, fields in delivered
        ]

    def _entry(self, lane: str, entry_id: bytes, fields: Mapping[bytes, bytes] | None) -> Entry:
        known = fields or {}
        job_id, hint = acceptable_id(known.get(b"id", b"")), read_hint(known.get(b"n", b""))
        return Entry(lane, entry_id.decode(), job_id, hint, self._clock())


@contextmanager
def _missing_groups_told() -> Iterator[None]:
    """Raise GroupMissing where the server says in one of its ways that a stream or its group is gone."""
    with connection.translated_errors():
        try:
            yield
        except ResponseError as error:
            # A blocked read whose stream is deleted says UNBLOCKED; the next one says NOGROUP. They are one thing.
            if "NOGROUP" in str(error) or "UNBLOCKED" in str(error):
                raise GroupMissing(str(error)) from error
            raise


def acceptable_id(raw: bytes) -> str:
    """Return the job ID that an entry names, '' if no producer could have written it."""
    try:
        return check_job_id(raw.decode())
    except (UnicodeDecodeError, InvalidInput):
        return ""


def read_hint(raw: bytes) -> int:
    """Return a length hint of 1 to `MAX_HINT` tokens, whatever the entry says."""
    return min(max(1, int(raw)), MAX_HINT) if raw.isdigit() and len(raw) < 10 else 1
