"""The client's operations as generators of steps: all that is hard about them, and no input or output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cordwood import calls
from cordwood.admission import check_deadlines
from cordwood.errors import CordwoodError, JobError, Submission
from cordwood.job import EncodedJob, Job, JobLimits, check_job_id, encode_job
from cordwood.keys import QUEUES, Keys, done_shard
from cordwood.result import JobRecord
from cordwood.scripts import MAX_JOBS_PER_CALL
from cordwood.steps import Commands, Operation

if TYPE_CHECKING:
    from cordwood.settings import Settings

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Context:
    """What every operation of one client needs to know."""

    limits: JobLimits
    defaults: Job
    max_depth: int
    heartbeat_ttl_s: float
    done_shard: int
    clock: Clock

    @classmethod
    def of(cls, settings: Settings, client_name: str, clock: Clock) -> Context:
        """Take from the settings what concerns a client."""
        return cls(
            limits=JobLimits(settings.max_payload_bytes, settings.max_inputs),
            defaults=Job(inputs=(), max_attempts=settings.max_attempts, result_ttl_s=settings.result_ttl_s),
            max_depth=settings.max_depth,
            heartbeat_ttl_s=settings.heartbeat_ttl_s,
            done_shard=done_shard(client_name),
            clock=clock,
        )

    @property
    def waiter_mask(self) -> int:
        """The bit that asks for the client's `done` stream to be told."""
        return 1 << self.done_shard


def submit(
    context: Context,
    keys: Keys,
    jobs: Sequence[Job],
    *,
    announce: bool,
    numbered: bool,
    admission_control: bool = False,
) -> Operation[list[str]]:
    """Check and submit jobs; the value is their IDs, in order.

    With `announce` the queue's name is written to the set of all queues first. Raises InvalidInput, PayloadTooLarge or
    with `admission_control` DeadlineUnmeetable before anything is sent, naming the job's position if they are
    `numbered`. If any job is refused, the first refusal is raised; its `submissions` says what became of every job.
    """
    encoded = [
        encode_job(job, context.limits, context.defaults, index=index if numbered else None)
        for index, job in enumerate(jobs)
    ]
    if admission_control:
        yield from check_deadlines(keys, encoded, ttl_s=context.heartbeat_ttl_s, numbered=numbered)
    submissions: list[Submission] = []
    stopped: CordwoodError | None = None
    if announce and encoded:
        try:
            yield Commands((("SADD", QUEUES, keys.queue),))
        except CordwoodError as error:
            stopped = error
    for chunk in calls.split_jobs(encoded):
        if stopped is None:
            fresh = yield from _submit_chunk(context, keys, chunk)
        else:
            fresh = [Submission(job.id, error=stopped) for job in chunk]
        submissions += fresh
        stopped = stopped or next((item.error for item in fresh if _stops(item.error)), None)
    refused = next((item.error for item in submissions if item.error is not None), None)
    if refused is not None:
        refused.submissions = tuple(submissions)
        raise refused
    return [item.job_id for item in submissions]


def _submit_chunk(context: Context, keys: Keys, chunk: Sequence[EncodedJob]) -> Operation[list[Submission]]:
    call = calls.submit_call(keys, chunk, max_depth=context.max_depth, waiter_mask=context.waiter_mask)
    try:
        reply = yield call
    except CordwoodError as error:
        return [Submission(job.id, error=error) for job in chunk]
    return calls.read_submissions(chunk, reply)


def _stops(error: CordwoodError | None) -> bool:
    """Whether a refusal concerns the queue or the server, so that the rest of the call need not be tried."""
    return error is not None and not isinstance(error, JobError | ValueError)


def look(keys: Keys, job_ids: Sequence[str]) -> Operation[list[JobRecord | None]]:
    """Read records without changing anything; None for those that are not there."""
    records: list[JobRecord | None] = []
    for chunk in calls.split([check_job_id(job_id) for job_id in job_ids], calls.WATCHED_PER_CALL):
        reply = yield calls.watch_call(keys, chunk, waiter_mask=0)
        records += calls.read_watched(chunk, reply)
    return records


def cancel(keys: Keys, job_ids: Sequence[str]) -> Operation[list[str]]:
    """Cancel jobs; the value is the state that each has now, `missing` where there is none."""
    states: list[str] = []
    for chunk in calls.split([check_job_id(job_id) for job_id in job_ids], MAX_JOBS_PER_CALL):
        reply = yield calls.sweep_call("cancel", keys, chunk)
        states += [answer.decode().removeprefix("already:") for answer in reply]
    return states
