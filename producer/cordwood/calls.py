"""Script calls of the producing side, built and read without touching the server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from cordwood.errors import CordwoodError, InvalidInput, JobConflict, QueueFull, ServerFull, Submission
from cordwood.result import RECORD_FIELDS, JobRecord, read_record
from cordwood.scripts import MAX_BYTES_PER_CALL, MAX_JOBS_PER_CALL
from cordwood.steps import Argument, ScriptCall

if TYPE_CHECKING:
    from cordwood.job import EncodedJob
    from cordwood.keys import Keys

WATCHED_PER_CALL: Final = 128
"""Jobs whose outcome one call asks for: the reply may hold as many results."""

_T = TypeVar("_T")


def split_jobs(jobs: Iterable[EncodedJob]) -> Iterator[list[EncodedJob]]:
    """Cut jobs into calls of at most `MAX_JOBS_PER_CALL` jobs and `MAX_BYTES_PER_CALL`; a larger job goes alone."""
    chunk: list[EncodedJob] = []
    size = 0
    for job in jobs:
        if chunk and (len(chunk) == MAX_JOBS_PER_CALL or size + job.size > MAX_BYTES_PER_CALL):
            yield chunk
            chunk, size = [], 0
        chunk.append(job)
        size += job.size
    if chunk:
        yield chunk


def split(items: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    """Cut a sequence into pieces of at most `size`."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def submit_call(keys: Keys, jobs: Sequence[EncodedJob], *, max_depth: int, waiter_mask: int) -> ScriptCall:
    """Build the call that submits these jobs."""
    args: list[Argument] = [max_depth, waiter_mask]
    for job in jobs:
        args += [job.id, job.lane, job.length_hint, job.payload, job.digest]
        args += [job.delay_ms, job.expires_ms, job.max_attempts, job.result_ttl_ms, job.deadline_ms, job.tenant]
    return ScriptCall("submit", record_keys(keys, [job.id for job in jobs]), tuple(args))


def read_submissions(jobs: Sequence[EncodedJob], reply: object) -> list[Submission]:
    """Read what `submit` answered for these jobs."""
    if isinstance(reply, bytes):
        return [Submission(job.id, error=_refusal(reply.decode())) for job in jobs]
    if not isinstance(reply, list) or len(reply) != len(jobs):
        raise CordwoodError(f"submit answered {type(reply).__name__} for {len(jobs)} jobs")
    return [_read_submission(job.id, bytes(answer).decode()) for job, answer in zip(jobs, reply, strict=True)]


def watch_call(keys: Keys, job_ids: Sequence[str], *, waiter_mask: int, patient: bool = True) -> ScriptCall:
    """Build the call that looks at jobs, and with a mask other than 0 asks to be told of their end."""
    return ScriptCall("watch", record_keys(keys, job_ids), (waiter_mask, *RECORD_FIELDS), patient)


def read_watched(job_ids: Sequence[str], reply: object) -> list[JobRecord | None]:
    """Read what `watch` answered: a record for each job, None where there is none."""
    if not isinstance(reply, list) or len(reply) != len(job_ids):
        raise CordwoodError(f"watch answered {type(reply).__name__} for {len(job_ids)} jobs")
    records: list[JobRecord | None] = []
    for job_id, (pttl, *fields) in zip(job_ids, reply, strict=True):
        records.append(read_record(job_id, fields, pttl) if len(fields) == len(RECORD_FIELDS) else None)
    return records


def sweep_call(name: str, keys: Keys, job_ids: Sequence[str], *, patient: bool = True) -> ScriptCall:
    """Build a call of `cancel`, `expire` or `promote`, which take job IDs and nothing else."""
    return ScriptCall(name, record_keys(keys, job_ids), tuple(job_ids), patient)


def record_keys(keys: Keys, job_ids: Iterable[str]) -> tuple[str, ...]:
    """The keys of a script call: the fixed ones, then the records of these jobs."""
    return (*keys.fixed, *map(keys.job, job_ids))


def _read_submission(job_id: str, answer: str) -> Submission:
    kind, _, state = answer.partition(":")
    if kind == "new":
        return Submission(job_id, "new")
    if kind == "dup":
        return Submission(job_id, state)
    if kind == "conflict":
        error = JobConflict(job_id, f"job {job_id} was submitted before with other contents")
        return Submission(job_id, error=error)
    return Submission(job_id, error=InvalidInput(f"the key of job {job_id} holds something else"))


def _refusal(answer: str) -> CordwoodError:
    if answer == "full:depth":
        return QueueFull("the queue is at its depth limit (max_depth): nothing of this call was accepted")
    return ServerFull("the server's memory is over 85 % of maxmemory: nothing of this call was accepted")
