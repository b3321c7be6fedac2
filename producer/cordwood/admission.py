"""Admission control: a deadline that by all that is known will be missed is refused before anything is submitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from cordwood.errors import DeadlineUnmeetable
from cordwood.forecast import Backlog, Capacity, capacity_of, served_in_s
from cordwood.keys import ALL_LANES, LANES
from cordwood.result import read_info
from cordwood.steps import Commands, Operation

if TYPE_CHECKING:
    from cordwood.job import EncodedJob
    from cordwood.keys import Keys

MAX_DIGITS = 16
Turn = tuple[str, str]
"""A lane and a tenant of it, '' for the jobs that have none."""


@dataclass(frozen=True, slots=True)
class QueueState:
    """What stands before a new job: who works, the jobs in each lane and aside, and where tenants' turns begin."""

    capacity: Capacity
    paused: bool
    in_lane: Mapping[str, int]
    aside: Mapping[str, int]
    tags: Mapping[Turn, int]


def check_deadlines(keys: Keys, jobs: Sequence[EncodedJob], *, ttl_s: float, numbered: bool) -> Operation[None]:
    """Raise DeadlineUnmeetable for the first of the jobs whose deadline is sooner than it can be done.

    What is before it is counted, in jobs of the mean length of late; of the same call, those of its lane and tenant
    that are ready at once. Where workers have not learned yet what their batches cost nothing is refused, and neither
    is a job that the server knows already. `ttl_s` is the age of a sign of life at which a worker counts as gone.
    """
    if not any(job.deadline_ms for job in jobs):
        return
    turns = sorted({(job.lane, job.tenant) for job in jobs})
    state = yield from _look(keys, turns, ttl_s)
    before = yield from _count_before(keys, turns, state)
    backlog = Backlog()
    for lane, count in state.in_lane.items():
        backlog.add(lane, count * state.capacity.tokens_per_job)
    own = dict.fromkeys(turns, 0.0)
    for index, job in enumerate(jobs):
        if job.deadline_ms:
            ahead = before[job.lane, job.tenant] * state.capacity.tokens_per_job + own[job.lane, job.tenant]
            expected_s = _expected_s(job, backlog, ahead, state)
            if expected_s * 1000 > job.deadline_ms and not (yield from _is_known(keys, job)):
                raise _refusal(keys.queue, job, expected_s, state, index if numbered else None)
        if not job.delay_ms:
            own[job.lane, job.tenant] += job.length_hint * state.capacity.tokens_per_hint


def _look(keys: Keys, turns: Sequence[Turn], ttl_s: float) -> Operation[QueueState]:
    tags = [*LANES, *(f"{lane}:{tenant}" for lane, tenant in turns)]
    now, scores, infos, paused, tagged, *counts = yield Commands(
        (
            ("TIME",),
            ("ZRANGE", keys.named("workers"), 0, -1, "WITHSCORES"),
            ("HGETALL", keys.named("info")),
            ("HGET", keys.named("meta"), "paused"),
            ("HMGET", keys.named("vt"), *tags),
            *(("XLEN", keys.lane(lane)) for lane in ALL_LANES),
            *(("ZCARD", keys.aside(lane)) for lane in LANES),
        )
    )
    oldest_ms = int(now[0]) * 1000 - 1000 * ttl_s
    alive = [name for name, score in _pairs(scores) if float(score) >= oldest_ms]
    starts = dict(zip(tags, map(_tag, tagged), strict=True))
    return QueueState(
        capacity=capacity_of(read_info(infos.get(name)) for name in alive),
        paused=paused == b"1",
        in_lane=dict(zip(ALL_LANES, counts[: len(ALL_LANES)], strict=True)),
        aside=dict(zip(LANES, counts[len(ALL_LANES) :], strict=True)),
        tags={(lane, tenant): max(starts[lane], starts[f"{lane}:{tenant}"]) for lane, tenant in turns},
    )


def _count_before(keys: Keys, turns: Sequence[Turn], state: QueueState) -> Operation[dict[Turn, int]]:
    """Count the jobs aside whose turn comes before a new job of each tenant."""
    if not any(state.aside.values()):
        return dict.fromkeys(turns, 0)
    counts = yield Commands(tuple(("ZCOUNT", keys.aside(turn[0]), "-inf", state.tags[turn]) for turn in turns))
    return dict(zip(turns, counts, strict=True))


def _is_known(keys: Keys, job: EncodedJob) -> Operation[bool]:
    """Whether this job was submitted before: then to submit it again changes nothing."""
    (found,) = yield Commands((("EXISTS", keys.job(job.id)),))
    return bool(found)


def _expected_s(job: EncodedJob, backlog: Backlog, before: float, state: QueueState) -> float:
    """Return in how many seconds the job can be done; 0.0 where nothing is known of how fast its queue is served.

    `before` are the tokens that its tenant's turn leaves before it, besides what is in the lanes.
    """
    capacity = state.capacity
    if state.paused or not capacity.workers:
        return inf
    if not capacity.is_known:
        return 0.0
    ahead = {lane: backlog.tokens.get(lane, 0.0) for lane in ALL_LANES}
    for lane in LANES:
        ahead[lane] += before if lane == job.lane else state.aside[lane] * capacity.tokens_per_job
    served_s = served_in_s(job.lane, ahead, capacity.tokens_per_s, capacity.lane_weights)
    return max(job.delay_ms / 1000, served_s) + capacity.job_s(job.length_hint)


def _refusal(
    queue: str, job: EncodedJob, expected_s: float, state: QueueState, index: int | None
) -> DeadlineUnmeetable:
    where = "" if index is None else f" (job {index})"
    if not state.capacity.workers:
        why = f"no worker serves queue {queue}"
    elif state.paused:
        why = f"queue {queue} is paused"
    else:
        why = f"with what is before it, it will be done in about {expected_s:.3g} s"
    message = f"deadline_s = {job.deadline_ms / 1000:g} cannot be met: {why}{where}"
    return DeadlineUnmeetable(message, expected_s=expected_s, deadline_s=job.deadline_ms / 1000, index=index)


def _tag(raw: bytes | None) -> int:
    return int(raw) if raw and raw.isdigit() and len(raw) < MAX_DIGITS else 0


def _pairs(flat: Sequence[Any]) -> list[tuple[Any, Any]]:
    return list(zip(flat[::2], flat[1::2], strict=True))
