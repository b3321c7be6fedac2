"""The only place that spells Redis keys.

All keys of one queue share one hash tag, so that every script runs in one cluster slot. The one key outside is
`cw:queues`, the set of all queue names, which no script touches.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from zlib import crc32

QUEUES: Final = "cw:queues"
GROUP: Final = "workers"
LANES: Final = ("high", "normal", "low")
"""The lanes an application may choose, most urgent first."""
AGAIN: Final = "again"
"""The lane of promoted retries and releases."""
ALL_LANES: Final = (AGAIN, *LANES)
DONE_SHARDS: Final = 8

_FIXED: Final = (
    *(f"lane:{lane}" for lane in ALL_LANES),
    "delayed",
    "expiring",
    "dead",
    "outbox",
    "workers",
    "batch",
    "suspects",
    "info",
    "sets",
    "stats",
    "meta",
    "spec",
    *(f"done:{shard}" for shard in range(DONE_SHARDS)),
    "vt",
    *(f"fair:{lane}" for lane in LANES),
)

QUEUE_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)


def tag(queue: str, shard: int = 0) -> str:
    """Return the hash tag of a queue's shard: `{q}` for shard 0, then `{q#1}`, `{q#2}`…"""
    return f"{{{queue}}}" if shard == 0 else f"{{{queue}#{shard}}}"


def done_shard(client_name: str) -> int:
    """Return which `done` stream (0 to 7) tells this client of finished jobs."""
    return crc32(client_name.encode()) % DONE_SHARDS


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one queue, spelled for Redis.

    The queue name must match `QUEUE_NAME`; `queue_keys` checks it.
    """

    queue: str
    prefix: str

    @property
    def fixed(self) -> list[str]:
        """The keys that every script gets first, in the order that `scripts/lib/keys.lua` names them."""
        return [self.prefix + name for name in _FIXED]

    def lane(self, lane: str) -> str:
        """The stream of one lane."""
        return f"{self.prefix}lane:{lane}"

    def aside(self, lane: str) -> str:
        """The jobs of a lane that wait for their tenant's turn; always empty for `again`."""
        return f"{self.prefix}fair:{lane}"

    def job(self, job_id: str) -> str:
        """The record of one job."""
        return f"{self.prefix}job:{job_id}"

    def done(self, shard: int) -> str:
        """The stream that tells the clients of one shard which jobs have finished."""
        return f"{self.prefix}done:{shard}"

    def named(self, name: str) -> str:
        """One of the fixed keys by its name, such as `delayed` or `stats`."""
        if name not in _FIXED:
            raise KeyError(name)
        return self.prefix + name

    @property
    def job_pattern(self) -> str:
        """The SCAN pattern of this queue's records, literal for every valid queue name."""
        return f"{self.prefix}job:*"

    def job_id(self, record_key: str) -> str:
        """The job ID that a record's key was made from."""
        return record_key.removeprefix(f"{self.prefix}job:")


def queue_keys(queue: str, shard: int = 0) -> Keys:
    """Return the keys of a queue; raise ValueError for a name that is not `[A-Za-z0-9._-]{1,64}`."""
    if QUEUE_NAME.fullmatch(queue) is None:
        raise ValueError(f"queue name {queue!r} is not 1 to 64 characters of A-Z a-z 0-9 . _ -")
    return Keys(queue=queue, prefix=f"cw:{tag(queue, shard)}:")
