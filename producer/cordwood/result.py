"""What a job's record says: its state, and its outcome once it has one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from cordwood import codec
from cordwood.errors import (
    CodecError,
    JobCancelled,
    JobDead,
    JobError,
    JobExpired,
    JobFailed,
    JobNotFound,
    SpecMismatch,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

FINAL_STATES: Final = frozenset({"done", "failed", "dead", "cancelled", "expired"})
STATES: Final = frozenset({"queued", "running", "delayed"}) | FINAL_STATES
MIN_RECORD_TTL_MS: Final = 120_000
"""A final record stays this long even if its result's TTL is shorter, so that a late repeat of a call finds it."""

SPEC_MISMATCH: Final = "spec-mismatch"
"""The error code of a job that asks for what its queue does not serve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """What a worker computed for one job, and how.

    `values` has one row per input: shape (inputs, dim) for embed, (inputs, labels) for classify. `tokens` counts the
    tokens kept of each input; `truncated` has the positions of the inputs that were cut.
    """

    task: str
    values: NDArray[Any]
    tokens: tuple[int, ...]
    truncated: tuple[int, ...]
    model: str
    fingerprint: str
    precision: str
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The outcome of a job that was done. Times are Redis time in ms since the epoch."""

    job_id: str
    outputs: Outputs
    worker: str
    attempt: int
    submitted_ms: int
    started_ms: int
    finished_ms: int

    @property
    def values(self) -> NDArray[Any]:
        """One row per input: shape (inputs, dim) for embed, (inputs, labels) for classify."""
        return self.outputs.values

    @property
    def vector(self) -> NDArray[Any]:
        """The row of the first input, shape (dim,)."""
        vector: NDArray[Any] = self.outputs.values[0]
        return vector


Outcome = Result | JobError
"""How a job ended: a result, or the error that `wait` would raise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A job's record as it was read: nothing of its payload."""

    job_id: str
    state: str
    lane: str
    tenant: str
    attempts: int
    max_attempts: int
    takeovers: int
    submitted_ms: int
    started_ms: int
    finished_ms: int
    deadline_ms: int
    expires_ms: int
    worker: str
    error_code: str
    error: str
    result: bytes | None
    payload_bytes: int = 0

    @property
    def is_final(self) -> bool:
        """Whether the job has its outcome."""
        return self.state in FINAL_STATES


MAX_INFO_BYTES: Final = 64 * 1024
"""What a reader takes of a worker's words about itself."""
RECORD_FIELDS: Final = (
    "st", "ln", "at", "ma", "to", "t0", "t1", "t2", "dl", "ex", "wk", "ec", "er", "rs", "rt", "tn",
)  # fmt: skip
"""The fields of a record that `read_record` wants, in this order."""


def read_record(job_id: str, values: Sequence[bytes | None], pttl_ms: int) -> JobRecord | None:
    """Read the HMGET reply for `RECORD_FIELDS` and the PTTL of one record; None if there is none, or no more.

    A result's own TTL may be shorter than its record's (`MIN_RECORD_TTL_MS`): what is left of the record's tells
    whether it has passed, without a clock.
    """
    at = RECORD_FIELDS.index("rs")
    result = values[at]
    text = ["" if value is None else value.decode("utf-8", "replace") for value in (*values[:at], *values[at + 1 :])]
    state, lane, attempts, max_attempts, takeovers, t0, t1, t2, deadline, expires, worker, code, error, ttl, tenant = (
        text
    )
    if state not in STATES:
        return None
    result_ttl_ms = _number(ttl)
    if pttl_ms >= 0 and 0 < result_ttl_ms < MIN_RECORD_TTL_MS - pttl_ms and state != "dead":
        return None
    return JobRecord(
        job_id=job_id,
        state=state,
        lane=lane,
        tenant=tenant,
        attempts=_number(attempts),
        max_attempts=_number(max_attempts),
        takeovers=_number(takeovers),
        submitted_ms=_number(t0),
        started_ms=_number(t1),
        finished_ms=_number(t2),
        deadline_ms=_number(deadline),
        expires_ms=_number(expires),
        worker=worker,
        error_code=code,
        error=error,
        result=result,
    )


def read_info(raw: bytes | None) -> Mapping[str, Any]:
    """Read what a worker says of itself; nothing where it says nothing or nothing readable."""
    try:
        return codec.unpack(raw, max_bytes=MAX_INFO_BYTES) if raw else {}
    except CodecError:
        return {}


def read_outcome(job_id: str, record: JobRecord | None) -> Outcome | None:
    """Return how the job ended, None while it has not; without a record it ends as JobNotFound."""
    if record is None:
        return JobNotFound(job_id, f"job {job_id} is not known: never submitted, expired or wiped")
    if record.state == "done":
        return _read_result(record)
    if record.state == "failed":
        if record.error_code == SPEC_MISMATCH:
            return SpecMismatch(job_id, f"job {job_id} does not fit what serves the queue: {record.error}")
        return JobFailed(job_id, f"job {job_id} failed: {record.error_code}: {record.error}", code=record.error_code)
    if record.state == "dead":
        message = f"job {job_id} is dead after {record.attempts} attempts: {record.error_code}: {record.error}"
        return JobDead(job_id, message, code=record.error_code)
    if record.state == "cancelled":
        return JobCancelled(job_id, f"job {job_id} was cancelled")
    if record.state == "expired":
        return JobExpired(job_id, f"job {job_id} expired before it was started")
    return None


def encode_outputs(outputs: Outputs, *, max_bytes: int) -> bytes:
    """Encode what a worker computed; CodecError if it is not finite, not a row an input, or over `max_bytes`."""
    from cordwood import arrays

    values = arrays.to_wire(outputs.values)
    _check_rows(values["shape"], len(outputs.tokens))
    fields: dict[str, Any] = {
        "t": outputs.task,
        "a": values,
        "n": [int(count) for count in outputs.tokens],
        "m": outputs.model,
        "f": outputs.fingerprint,
        "p": outputs.precision,
    }
    if outputs.truncated:
        fields["c"] = [int(position) for position in outputs.truncated]
    if outputs.metadata:
        fields["d"] = dict(outputs.metadata)
    return codec.pack(fields, max_bytes=max_bytes)


def decode_outputs(data: bytes, *, max_bytes: int) -> Outputs:
    """Decode what `encode_outputs` made; CodecError for anything else."""
    from cordwood import arrays

    fields = codec.unpack(data, max_bytes=max_bytes)
    names = [fields.get(name) for name in "tmfp"]
    tokens, truncated, metadata = fields.get("n"), fields.get("c", []), fields.get("d", {})
    if not all(isinstance(name, str) for name in names) or not isinstance(metadata, dict):
        raise CodecError("a result lacks task, model, fingerprint or precision")
    if not _is_int_list(tokens) or not _is_int_list(truncated):
        raise CodecError("a result's token counts are not numbers")
    task, model, fingerprint, precision = map(str, names)
    values = arrays.from_wire(fields.get("a"))
    _check_rows(values.shape, len(tokens))
    return Outputs(
        task=task,
        values=values,
        tokens=tuple(tokens),
        truncated=tuple(truncated),
        model=model,
        fingerprint=fingerprint,
        precision=precision,
        metadata=metadata,
    )


_MAX_DIGITS: Final = 20

MAX_RESULT_WIRE_BYTES: Final = 256 * 1024 * 1024
"""A reader's bound; the worker's `max_result_bytes` is the limit that matters."""


def _read_result(record: JobRecord) -> Outcome:
    if record.result is None:
        return JobNotFound(record.job_id, f"job {record.job_id} is done but its result is gone")
    try:
        outputs = decode_outputs(record.result, max_bytes=MAX_RESULT_WIRE_BYTES)
    except CodecError as error:
        message = f"job {record.job_id} has a result that cannot be read: {error}"
        return JobFailed(record.job_id, message, code="bad-result")
    return Result(
        job_id=record.job_id,
        outputs=outputs,
        worker=record.worker,
        attempt=record.attempts,
        submitted_ms=record.submitted_ms,
        started_ms=record.started_ms,
        finished_ms=record.finished_ms,
    )


def _check_rows(shape: Sequence[int], inputs: int) -> None:
    if not shape or shape[0] != inputs:
        raise CodecError(f"values of shape {tuple(shape)} do not have one row for each of {inputs} inputs")


def _is_int_list(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(item) is int for item in value)


def _number(text: str) -> int:
    """Read a counter or a time; 0 for anything else, whoever wrote the record."""
    return int(text) if len(text) < _MAX_DIGITS and text.isascii() and text.isdigit() else 0
