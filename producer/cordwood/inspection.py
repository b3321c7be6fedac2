"""Looking at queues, jobs and workers. Nothing here changes anything (invariant 8): only reading commands are sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

from cordwood.connection import translated_errors
from cordwood.forecast import capacity_of
from cordwood.keys import ALL_LANES, GROUP, LANES, QUEUE_NAME, QUEUES, Keys
from cordwood.result import RECORD_FIELDS, JobRecord, read_info, read_record

if TYPE_CHECKING:
    from cordwood.connection import SyncRedis

COUNTERS: Final = (
    "submitted", "done", "failed", "dead", "cancelled", "expired", "retried", "released", "reclaimed",
    "batches", "rows", "tokens", "padded_tokens", "compute_us",
    "oom_halvings", "precision_fallbacks", "non_finite_rows", "non_finite_saved",
)  # fmt: skip
"""What is counted of a queue: jobs by what became of them, then the work of its workers."""
SCANNED_AT_ONCE: Final = 500
KNOWN_LANES: Final = frozenset(lane.encode() for lane in LANES)
_MAX_DIGITS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneView:
    """One lane: entries not delivered yet, entries in workers' hands, and jobs that wait for their tenant's turn."""

    lane: str
    ready: int
    in_flight: int
    aside: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """A queue as it is now. Ages are in ms of the server's time, 0 where there is nothing.

    `drain_s` is in how many seconds its workers will have done all that is ready or in flight; None if nobody knows.
    """

    queue: str
    lanes: tuple[LaneView, ...]
    delayed: int
    dead: int
    oldest_age_ms: int
    drain_s: float | None
    paused: bool
    workers: int
    model: str
    task: str
    stats: Mapping[str, int]

    @property
    def ready(self) -> int:
        """Jobs that wait for a worker."""
        return sum(lane.ready + lane.aside for lane in self.lanes)

    @property
    def in_flight(self) -> int:
        """Jobs in some worker's hands."""
        return sum(lane.in_flight for lane in self.lanes)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """A worker as it last showed itself: what it said of itself, and how long ago."""

    consumer: str
    age_ms: int
    info: Mapping[str, Any]


def queue_names(redis: SyncRedis) -> list[str]:
    """Return the names of all queues that were ever used, sorted; what no queue can be called is left out."""
    with translated_errors():
        raw = cast("set[bytes]", redis.smembers(QUEUES))
    names = (name.decode("utf-8", "replace") for name in raw)
    return sorted(name for name in names if QUEUE_NAME.fullmatch(name))


def queue_stats(redis: SyncRedis, keys: Keys) -> dict[str, int]:
    """Return the queue's `COUNTERS`."""
    with translated_errors():
        fields = cast("dict[bytes, bytes]", redis.hgetall(keys.named("stats")))
    return _counters(fields)


def look_at_queue(redis: SyncRedis, keys: Keys) -> QueueView:
    """Return what a queue holds and who serves it; a queue that does not exist is empty.

    Ready and in flight are counted from the stream's length and its group's pending entries, never from the group's
    lag, which is unknown after a deletion.
    """
    with translated_errors(), redis.pipeline(transaction=False) as pipe:
        pipe.execute_command("TIME")
        pipe.execute_command("ZCARD", keys.named("delayed"))
        pipe.execute_command("XLEN", keys.named("dead"))
        pipe.execute_command("ZRANGE", keys.named("workers"), 0, -1)
        pipe.execute_command("HGETALL", keys.named("info"))
        pipe.execute_command("HGETALL", keys.named("stats"))
        pipe.execute_command("HMGET", keys.named("meta"), "paused")
        pipe.execute_command("HMGET", keys.named("spec"), "task", "model")
        for lane in ALL_LANES:
            pipe.execute_command("XLEN", keys.lane(lane))
            pipe.execute_command("XRANGE", keys.lane(lane), "-", "+", "COUNT", 1)
            pipe.execute_command("ZCARD", keys.aside(lane))
        now, delayed, dead, workers, infos, stats, (paused,), (task, model), *lanes = pipe.execute()
    lengths, oldest, aside = lanes[::3], [entries[0][0] for entries in lanes[1::3] if entries], lanes[2::3]
    there = zip(ALL_LANES, lengths, strict=True)
    pending = [_pending(redis, keys.lane(lane)) if length else 0 for lane, length in there]
    now_ms = int(now[0]) * 1000 + int(now[1]) // 1000
    return QueueView(
        queue=keys.queue,
        lanes=tuple(
            LaneView(lane=lane, ready=max(0, length - held), in_flight=held, aside=waiting)
            for lane, length, held, waiting in zip(ALL_LANES, lengths, pending, aside, strict=True)
        ),
        delayed=delayed,
        dead=dead,
        oldest_age_ms=max((now_ms - int(entry.split(b"-")[0]) for entry in oldest), default=0),
        paused=paused == b"1",
        drain_s=capacity_of(read_info(infos.get(name)) for name in workers).drain_s(sum(lengths) + sum(aside)),
        workers=len(workers),
        task=(task or b"").decode("utf-8", "replace"),
        model=(model or b"").decode("utf-8", "replace"),
        stats=_counters(stats),
    )


def look_at_job(redis: SyncRedis, keys: Keys, job_id: str) -> JobRecord | None:
    """Return a job's record with the size of its payload but without the payload, None if there is none."""
    with translated_errors(), redis.pipeline(transaction=False) as pipe:
        pipe.execute_command("HMGET", keys.job(job_id), *RECORD_FIELDS)
        pipe.execute_command("PTTL", keys.job(job_id))
        pipe.execute_command("HSTRLEN", keys.job(job_id), "pl")
        fields, pttl_ms, payload_bytes = cast("tuple[Sequence[bytes | None], int, int]", pipe.execute())
    record = read_record(job_id, fields, pttl_ms)
    return record and replace(record, payload_bytes=payload_bytes)


def recorded_arrivals(redis: SyncRedis, keys: Keys) -> Iterator[tuple[float, int, str]]:
    """Yield when the jobs whose records are there came, in seconds, their tokens, and their lanes; in no order.

    The tokens are the length hint times what workers say that a token of hint comes to; the hint, where none says so.
    """
    infos = [view.info for view in look_at_workers(redis, keys)]
    tokens_per_hint = capacity_of(infos).tokens_per_hint or 1.0
    cursor: Any = -1
    while cursor != 0:
        with translated_errors():
            cursor, names = cast("Any", redis.scan(max(0, cursor), match=keys.job_pattern, count=SCANNED_AT_ONCE))
        with translated_errors(), redis.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.execute_command("HMGET", name, "t0", "hi", "ln")
            records = pipe.execute(raise_on_error=False)
        for record in records:
            if isinstance(record, list) and record[2] in KNOWN_LANES and all(map(_is_number, record[:2])):
                tokens = max(1, round(int(record[1]) * tokens_per_hint))
                yield int(record[0]) / 1000, tokens, record[2].decode()


def look_at_workers(redis: SyncRedis, keys: Keys) -> list[WorkerView]:
    """Return the registered workers of a queue, the one that showed itself last first."""
    with translated_errors(), redis.pipeline(transaction=False) as pipe:
        pipe.execute_command("TIME")
        pipe.execute_command("ZREVRANGE", keys.named("workers"), 0, -1, "WITHSCORES")
        pipe.execute_command("HGETALL", keys.named("info"))
        now, scores, infos = pipe.execute()
    now_ms = int(now[0]) * 1000 + int(now[1]) // 1000
    return [
        WorkerView(
            consumer=name.decode("utf-8", "replace"),
            age_ms=round(now_ms - float(score)),
            info=read_info(infos.get(name)),
        )
        for name, score in zip(scores[::2], scores[1::2], strict=True)
    ]


def _pending(redis: SyncRedis, stream: str) -> int:
    """Count the entries in workers' hands; 0 for a stream without a group."""
    with translated_errors():
        groups = redis.xinfo_groups(stream)
    return next((int(group["pending"]) for group in groups if group["name"] == GROUP.encode()), 0)


def _counters(fields: Mapping[bytes, bytes]) -> dict[str, int]:
    """Give every known counter a value, so that there are the same names whatever has happened so far."""
    values = {name: fields.get(name.encode(), b"") for name in COUNTERS}
    return {name: int(value) if _is_number(value) else 0 for name, value in values.items()}


def _is_number(value: bytes | None) -> bool:
    return value is not None and value.isdigit() and len(value) < _MAX_DIGITS
