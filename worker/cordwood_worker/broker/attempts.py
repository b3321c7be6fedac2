"""Beginning attempts at jobs and ending them: every call acts on the record, under its token."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from cordwood.keys import LANES
from cordwood.scripts import MAX_BYTES_PER_CALL, MAX_JOBS_PER_CALL
from cordwood_worker.broker.connection import QueueConnection
from cordwood_worker.entry import Attempt, Entry, Refusal

MOST_TAKEOVERS: Final = 5
MAX_ERROR_CHARS: Final = 500
_LANES: Final[Mapping[bytes | int | None, str]] = {lane.encode(): lane for lane in LANES}


@dataclass(frozen=True, slots=True)
class Done:
    """A job that is to end as done."""

    attempt: Attempt
    result: bytes


@dataclass(frozen=True, slots=True)
class Fault:
    """A job that is to end otherwise, or to be tried again: why, as a code and a text without its input."""

    attempt: Attempt
    code: str
    text: str


class Attempts:
    """The scripts that begin and end attempts, on behalf of one worker."""

    def __init__(self, queue: QueueConnection, dead_ttl_s: float, clock: Callable[[], float]) -> None:
        self._queue = queue
        self._dead_ttl_ms = round(dead_ttl_s * 1000)
        self._clock = clock

    def start(
        self, entries: Sequence[Entry], *, stage: str = "", spare_suspects: bool = False
    ) -> list[Attempt | Refusal]:
        """Begin an attempt at each entry's job, in order; a Refusal means that the entry is to be forgotten.

        With a stage the jobs begun are noted, as by `mark`. With `spare_suspects` a job that a worker that died had on
        its device is refused as `suspect`: that entry is to be begun alone.
        """
        answers: list[Attempt | Refusal] = []
        for first in range(0, len(entries), MAX_JOBS_PER_CALL):
            chunk = entries[first : first + MAX_JOBS_PER_CALL]
            base = secrets.token_hex(8)
            tokens = [f"{base}.{position}" for position in range(len(chunk))]
            head = (self._queue.consumer, self._dead_ttl_ms, MOST_TAKEOVERS, stage, int(spare_suspects))
            args: list[str | int] = [*head]
            for entry, token in zip(chunk, tokens, strict=True):
                args += [entry.lane, entry.entry_id, entry.job_id, token]
            reply = self._queue.call("start", [entry.job_id for entry in chunk], args)
            now_s = self._clock()
            answers += [_read_start(*item, now_s) for item in zip(chunk, tokens, reply, strict=True)]
        return answers

    def mark(self, stage: str, job_ids: Iterable[str]) -> None:
        """Note which jobs are about to be tokenised (`tokenise`) or computed (`run`); none clears the note."""
        self._queue.call("mark", (), (self._queue.consumer, stage, " ".join(job_ids)))

    def finish(self, jobs: Sequence[Done]) -> list[str]:
        """End jobs as done; the answers are `done`, `already:<state>`, `lost` or `bad`, in order."""
        answers: list[str] = []
        for chunk in _by_size(jobs):
            args: list[str | bytes] = []
            for job in chunk:
                args += [job.attempt.job_id, job.attempt.token, job.result]
            answers += _texts(self._queue.call("finish", [job.attempt.job_id for job in chunk], args))
        return answers

    def fail(self, jobs: Sequence[Fault]) -> list[str]:
        """End jobs as failed: their input is at fault."""
        return self._faults("fail", jobs, (), ())

    def bury(self, jobs: Sequence[Fault]) -> list[str]:
        """End jobs in the dead letters."""
        return self._faults("dead", jobs, (self._dead_ttl_ms,), ())

    def retry(self, jobs: Sequence[Fault], delay_ms: int) -> list[str]:
        """Put jobs aside for another attempt after a delay, or into the dead letters if none is left."""
        return self._faults("retry", jobs, (self._dead_ttl_ms,), (delay_ms,))

    def release(self, held: Sequence[tuple[Entry, str]]) -> list[str]:
        """Hand entries back, each with its token ('' if it was not started): ready again at once, nothing counted."""
        answers: list[str] = []
        for first in range(0, len(held), MAX_JOBS_PER_CALL):
            chunk = held[first : first + MAX_JOBS_PER_CALL]
            args = [self._queue.consumer]
            for entry, token in chunk:
                args += [entry.job_id, token, entry.lane, entry.entry_id]
            answers += _texts(self._queue.call("release", [entry.job_id for entry, _ in chunk], args))
        return answers

    def _faults(self, name: str, jobs: Sequence[Fault], head: tuple[int, ...], each: tuple[int, ...]) -> list[str]:
        answers: list[str] = []
        for first in range(0, len(jobs), MAX_JOBS_PER_CALL):
            chunk = jobs[first : first + MAX_JOBS_PER_CALL]
            args: list[str | int] = [*head]
            for job in chunk:
                args += [job.attempt.job_id, job.attempt.token, *each, job.code, job.text[:MAX_ERROR_CHARS]]
            answers += _texts(self._queue.call(name, [job.attempt.job_id for job in chunk], args))
        return answers


def _read_start(entry: Entry, token: str, reply: list[bytes | int | None], now_s: float) -> Attempt | Refusal:
    kind = reply[0]
    if kind != b"go":
        return Refusal(entry, kind.decode() if isinstance(kind, bytes) else "bad")
    _, payload, number, suspect, lane, left_ms = reply
    return Attempt(
        entry=entry,
        token=token,
        number=number if isinstance(number, int) else 0,
        suspect=suspect == 1,
        payload=payload if isinstance(payload, bytes) else b"",
        lane=_LANES.get(lane, "normal"),
        deadline_s=now_s + left_ms / 1000 if isinstance(left_ms, int) else inf,
    )


def _by_size(jobs: Sequence[Done]) -> Iterable[list[Done]]:
    chunk: list[Done] = []
    size = 0
    for job in jobs:
        if chunk and (len(chunk) == MAX_JOBS_PER_CALL or size + len(job.result) > MAX_BYTES_PER_CALL):
            yield chunk
            chunk, size = [], 0
        chunk.append(job)
        size += len(job.result)
    if chunk:
        yield chunk


def _texts(reply: Iterable[bytes]) -> list[str]:
    return [answer.decode() for answer in reply]
