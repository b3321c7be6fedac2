"""What `Client` and `AsyncClient` share: everything but the way of performing a step."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypedDict, cast

from cordwood import operations
from cordwood.done import DoneTable, Signal
from cordwood.errors import CordwoodError, InvalidInput, JobError, PayloadTooLarge, SpecMismatch
from cordwood.job import Input, Job, JobLimits, Metadata
from cordwood.keys import Keys, queue_keys
from cordwood.operations import Clock, Context
from cordwood.options import DEFAULT_OPTIONS, EmbedOptions
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
    tenant: str | None
    delay_s: float
    deadline_s: float | None
    expires_s: float | None
    max_attempts: int | None
    result_ttl_s: float | None
    options: EmbedOptions
    metadata: Metadata


class Core:
    """One client's state, and its operations as steps."""

    def __init__(self, settings: Settings, queue: str, clock: Clock) -> None:
        self.context = Context.of(settings, f"client-{secrets.token_hex(8)}", clock)
        self._default_queue = queue
        self._keys: dict[str, Keys] = {}
        self._tables: dict[tuple[int, str], DoneTable] = {}
        self._announced: set[str] = set()
        self._closed = False
        self.keys(None)

    def close(self) -> None:
        """Let no step be performed any more, and wake all waits, so that they end."""
        self._closed = True
        for table in list(self._tables.values()):
            table.tell_gap()

    def check_open(self) -> None:
        """Raise CordwoodError after `close`."""
        if self._closed:
            raise CordwoodError("the client was closed: make another one")

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
        """The open waits on a queue; a forked child starts without those of its parent's threads."""
        return self._tables.setdefault((os.getpid(), keys.queue), DoneTable())

    def submit(
        self,
        queue: str | None,
        jobs: Sequence[Job],
        admission_control: bool = False,  # noqa: FBT001, FBT002 - the callers' own name for it
        *,
        numbered: bool = True,
    ) -> Operation[list[str]]:
        """Submit jobs; the value is their IDs, in order. An error names the position of a job if `numbered`."""
        keys = self.keys(queue)
        job_ids = yield from operations.submit(
            self.context,
            keys,
            jobs,
            announce=keys.queue not in self._announced,
            numbered=numbered,
            admission_control=admission_control,
        )
        if jobs:
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
        self, queue: str | None, job_ids: Iterable[str], timeout_s: float | None, signal: Signal
    ) -> Operation[list[Outcome]]:
        """Wait for all of the jobs; the value is their outcomes in the order of `job_ids`."""
        wanted = job_ids if isinstance(job_ids, str) else list(job_ids)
        outcomes: dict[str, Outcome] = {}
        with self.wait(queue, wanted, timeout_s, signal) as wait:
            while wait.pending:
                outcomes.update((yield from wait.next_outcomes()))
        return [outcomes[job_id] for job_id in wanted]

    def embed(
        self, queue: str | None, texts: Sequence[str], timeout_s: float | None, signal: Signal, options: JobOptions
    ) -> Operation[NDArray[Any]]:
        """Embed texts through as few jobs as is sensible; the value has a vector for each, float32 unless asked so."""
        import numpy as np

        if isinstance(texts, str):
            raise InvalidInput("embed takes a sequence of texts: put a single text into a list")
        if len(texts) == 0:
            reply = yield Commands((("HGET", self.keys(queue).named("spec"), "dim"),))
            dim = int(reply[0]) if reply[0] and reply[0].isdigit() else 0
            wanted = options.get("options", DEFAULT_OPTIONS)
            return np.zeros((0, wanted.width(dim)), dtype=wanted.dtype)
        asked: JobOptions = {"task": "embed", **options}
        jobs = [Job(inputs=bundle, **asked) for bundle in bundles(texts, self.context.limits)]
        job_ids = yield from self.submit(queue, jobs)
        outcomes = yield from self.wait_many(queue, job_ids, timeout_s, signal)
        results = [succeeded(outcome) for outcome in outcomes]
        for job, result in zip(jobs, results, strict=True):
            check_vectors(job, result, results[0])
        return np.concatenate([result.values for result in results])


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


def bundles(texts: Sequence[str], limits: JobLimits) -> list[tuple[str, ...]]:
    """Cut texts, in order, into groups of at most `TEXTS_PER_JOB` and `BYTES_PER_JOB`; a longer text goes alone.

    Raises InvalidInput or PayloadTooLarge, naming the position, for a text that no job may hold.
    """
    most_texts = min(TEXTS_PER_JOB, limits.max_inputs)
    most_bytes = min(BYTES_PER_JOB, limits.max_payload_bytes)
    groups: list[tuple[str, ...]] = []
    group: list[str] = []
    total = 0
    for position, text in enumerate(texts):
        size = _text_bytes(text, position, limits.max_payload_bytes)
        if group and (len(group) == most_texts or total + size > most_bytes):
            groups.append(tuple(group))
            group, total = [], 0
        group.append(text)
        total += size
    return [*groups, tuple(group)]


def check_vectors(job: Job, result: Result, first: Result) -> None:
    """Raise SpecMismatch unless there is a vector for each input, and they are of the same model as the first's."""
    there, there_first = result.values.shape, first.values.shape
    if there != (len(job.inputs), *there_first[1:]) or result.outputs.fingerprint != first.outputs.fingerprint:
        message = (
            f"job {result.job_id} has values of shape {there} by {result.outputs.fingerprint} for"
            f" {len(job.inputs)} texts, job {first.job_id} of shape {there_first} by {first.outputs.fingerprint}"
        )
        raise SpecMismatch(result.job_id, message)


def succeeded(outcome: Outcome) -> Result:
    """Return the result, or raise the error that the outcome is."""
    if isinstance(outcome, JobError):
        raise outcome
    return outcome


def _text_bytes(text: object, position: int, limit: int) -> int:
    """Count without encoding what is certainly too large: a text has at least as many bytes as characters."""
    if not isinstance(text, str):
        raise InvalidInput(f"text {position} is a {type(text).__name__}, not a str", index=position)
    try:
        size = len(text) if text.isascii() or len(text) > limit else len(text.encode())
    except UnicodeEncodeError as error:
        message = f"text {position} has a lone surrogate at character {error.start}"
        raise InvalidInput(message, index=position) from None
    if size > limit:
        message = f"text {position} has at least {size} bytes, over the limit max_payload_bytes = {limit}"
        raise PayloadTooLarge(message, size=size, limit=limit, index=position)
    return size
