"""What `Client` and `AsyncClient` share: everything but the way of performing a step."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypedDict, cast

from cordwood import operations
from cordwood.done import DoneTable, Signal
from cordwood.errors import InvalidInput, JobError
from cordwood.job import Input, Job, Metadata
from cordwood.keys import Keys, queue_keys
from cordwood.operations import Clock, Context
from cordwood.result import JobRecord, Outcome, Result
from cordwood.steps import Commands, Operation
from cordwood.waiting import Wait

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cordwood.settings import Settings

TEXTS_PER_JOB: Final = 32
BYTES_PER_JOB: Final = 32_768

Work = str | tuple[str, str] | Sequence[Input] | Job
"""What may be submitted: one text, one pair, a list of texts or pairs that make one job, or a whole `Job`."""


class JobOptions(TypedDict, total=False):
    """The fields of `Job` but its inputs and ID, as keywords."""

    task: str | None
    lane: str
    delay_s: float
    expires_s: float | None
    max_attempts: int | None
    result_ttl_s: float | None
    metadata: Metadata


class Core:
    """One client's state, and its operations as steps."""

    def __init__(self, settings: Settings, queue: str, clock: Clock) -> None:
        self.context = Context.of(settings, f"client-{secrets.token_hex(8)}", clock)
        self._default_queue = queue
        self._keys: dict[str, Keys] = {}
        self._tables: dict[str, DoneTable] = {}
        self._announced: set[str] = set()
        self.keys(None)

    def keys(self, queue: str | None) -> Keys:
        """The keys of a queue, the client's own for None; raises InvalidInput for a name that is not allowed."""
        name = self._default_queue if queue is None else queue
        if name not in self._keys:
            try:
                self._keys[name] = queue_keys(name)
            except (ValueError, TypeError) as error:
                raise InvalidInput(str(error)) from None
        return self._keys[name]

    def table(self, keys: Keys) -> DoneTable:
        """The open waits on a queue."""
        return self._tables.setdefault(keys.queue, DoneTable())

    def submit(self, queue: str | None, jobs: Sequence[Job]) -> Operation[list[str]]:
        """Submit jobs; the value is their IDs, in order."""
        keys = self.keys(queue)
        announce = keys.queue not in self._announced
        job_ids = yield from operations.submit(self.context, keys, jobs, announce=announce)
        self._announced.add(keys.queue)
        return job_ids

    def look(self, queue: str | None, job_ids: Sequence[str]) -> Operation[list[JobRecord | None]]:
        """Read records; None for those that are not there."""
        return operations.look(self.keys(queue), job_ids)

    def cancel(self, queue: str | None, job_ids: Sequence[str]) -> Operation[list[str]]:
        """Cancel jobs; the value is the state of each."""
        return operations.cancel(self.keys(queue), job_ids)

    def wait(self, queue: str | None, job_ids: Iterable[str], timeout_s: float | None, signal: Signal) -> Wait:
        """Begin a wait; the signal is what its `Park` steps wait for."""
        keys = self.keys(queue)
        table = self.table(keys)
        return Wait(self.context, keys, job_ids, timeout_s=timeout_s, table=table, signal=signal)

    def wait_many(
        self, queue: str | None, job_ids: Sequence[str], timeout_s: float | None, signal: Signal
    ) -> Operation[list[Outcome]]:
        """Wait for all of the jobs; the value is their outcomes in the order of `job_ids`."""
        outcomes: dict[str, Outcome] = {}
        with self.wait(queue, job_ids, timeout_s, signal) as wait:
            while wait.pending:
                outcomes.update((yield from wait.next_outcomes()))
        return [outcomes[job_id] for job_id in job_ids]

    def embed(
        self, queue: str | None, texts: Sequence[str], timeout_s: float | None, signal: Signal, options: JobOptions
    ) -> Operation[NDArray[Any]]:
        """Embed texts through as few jobs as is sensible; the value has shape (len(texts), dim), float32."""
        import numpy as np

        if isinstance(texts, str):
            raise InvalidInput("embed takes a sequence of texts: put a single text into a list")
        if not texts:
            reply = yield Commands((("HGET", self.keys(queue).named("spec"), "dim"),))
            return np.zeros((0, int(reply[0] or 0)), dtype=np.float32)
        jobs = [Job(inputs=bundle, **options) for bundle in bundles(texts, self.context.limits.max_inputs)]
        job_ids = yield from self.submit(queue, jobs)
        outcomes = yield from self.wait_many(queue, job_ids, timeout_s, signal)
        return np.concatenate([np.asarray(succeeded(outcome).values, dtype=np.float32) for outcome in outcomes])


def as_job(work: object, job_id: str | None, options: JobOptions, *, index: int | None = None) -> Job:
    """Make a `Job` of what the caller gave; a `Job` is taken as it is and given an ID or options only if set."""
    if isinstance(work, Job):
        changes: dict[str, Any] = {**options, **({} if job_id is None else {"id": job_id})}
        return replace(work, **changes) if changes else work
    if isinstance(work, str) or (isinstance(work, tuple) and len(work) == 2):
        return Job(inputs=(cast("Input", work),), id=job_id, **options)
    if isinstance(work, Sequence) and not isinstance(work, bytes | bytearray):
        return Job(inputs=tuple(work), id=job_id, **options)
    where = "" if index is None else f" (job {index})"
    raise InvalidInput(f"a {type(work).__name__} is not a text, a pair, a list of them or a Job{where}", index=index)


def as_jobs(works: Iterable[Work], options: JobOptions) -> list[Job]:
    """Make a list of `Job` of what the caller gave, naming the position of what cannot be one."""
    if isinstance(works, str):
        raise InvalidInput("submit_many takes an iterable of jobs: use submit for a single text")
    return [as_job(work, None, options, index=index) for index, work in enumerate(works)]


def bundles(texts: Sequence[str], max_inputs: int) -> list[tuple[str, ...]]:
    """Cut texts, in order, into groups of at most `TEXTS_PER_JOB` and about `BYTES_PER_JOB`."""
    groups: list[tuple[str, ...]] = []
    group: list[str] = []
    size = 0
    for position, text in enumerate(texts):
        if not isinstance(text, str):
            raise InvalidInput(f"text {position} is a {type(text).__name__}, not a str", index=position)
        if group and (len(group) == min(TEXTS_PER_JOB, max_inputs) or size + len(text) > BYTES_PER_JOB):
            groups.append(tuple(group))
            group, size = [], 0
        group.append(text)
        size += len(text)
    return [*groups, tuple(group)]


def succeeded(outcome: Outcome) -> Result:
    """Return the result, or raise the error that the outcome is."""
    if isinstance(outcome, JobError):
        raise outcome
    return outcome
