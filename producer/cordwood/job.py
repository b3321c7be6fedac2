"""A job as the application describes it: checked, given an ID, and encoded, before anything is sent."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

from cordwood import codec
from cordwood.errors import CodecError, InvalidInput, MessageTooLarge, PayloadTooLarge
from cordwood.keys import LANES
from cordwood.options import DEFAULT_OPTIONS, EmbedOptions

Input = str | tuple[str, str]
"""One text, or one pair of texts."""
Metadata = Mapping[str, Any]

TASKS: Final = ("embed", "classify", "zero_shot", "rerank")
MAX_ID_BYTES: Final = 128
MAX_TENANT_BYTES: Final = 64
DIGEST_BYTES: Final = 16
_FORBIDDEN_IN_ID: Final = re.compile(r"[\x00-\x20\x7f-\xa0\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]|\s")
_BASE32: Final = "0123456789abcdefghjkmnpqrstvwxyz"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One unit of work: the inputs of one task, and what is to become of it.

    `inputs` are texts or pairs of texts, 1 to `max_inputs`. Times are in seconds from the moment that the server
    accepts the job: `delay_s` before it becomes ready, `deadline_s` until it had better be done, `expires_s` until it
    ends as expired if it was not started, `result_ttl_s` that its outcome is kept (0 for ever; None takes the client's
    setting). Among a lane's jobs that a worker has fetched the earliest deadline is first; one that is late still runs.
    A `tenant`, on whose behalf the job is, shares its lane fairly with the others by tokens: see `pump.lua`.
    `options` say how texts are embedded. `metadata` comes back with the result.
    """

    inputs: tuple[Input, ...]
    id: str | None = None
    task: str | None = None
    lane: str = "normal"
    tenant: str | None = None
    delay_s: float = 0.0
    deadline_s: float | None = None
    expires_s: float | None = None
    max_attempts: int | None = None
    result_ttl_s: float | None = None
    options: EmbedOptions = DEFAULT_OPTIONS
    metadata: Metadata = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobLimits:
    """What a job may be, in bytes of UTF-8 (inputs and metadata together) and in inputs."""

    max_payload_bytes: int
    max_inputs: int

    @property
    def max_wire_bytes(self) -> int:
        """The largest encoded payload that these limits allow, with room for msgpack's own bytes."""
        return self.max_payload_bytes + 16 * self.max_inputs + 4096


@dataclass(frozen=True, slots=True)
class Payload:
    """What a worker needs of a job."""

    inputs: tuple[Input, ...]
    task: str | None
    metadata: Metadata
    options: EmbedOptions = DEFAULT_OPTIONS


@dataclass(frozen=True, slots=True)
class EncodedJob:
    """A job that is ready to be sent: every check is passed, and `payload` and `digest` are bytes."""

    id: str
    lane: str
    payload: bytes
    digest: bytes
    length_hint: int
    delay_ms: int
    expires_ms: int
    max_attempts: int
    result_ttl_ms: int
    deadline_ms: int = 0
    tenant: str = ""

    @property
    def size(self) -> int:
        """About how many bytes the job takes in a request."""
        return len(self.payload) + len(self.id) + 100


def new_job_id(now_ms: int | None = None) -> str:
    """Return a new ID of 26 characters: 48 bits of the time in ms, then 80 random bits, so that IDs sort by time."""
    moment = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    number = (moment & (1 << 48) - 1) << 80 | secrets.randbits(80)
    return "".join(_BASE32[number >> shift & 31] for shift in range(125, -1, -5))


def check_job_id(job_id: str, *, index: int | None = None) -> str:
    """Return the ID if it is 1 to 128 bytes of UTF-8 without spaces and control characters, else raise InvalidInput."""
    return _checked_name("a job ID", job_id, MAX_ID_BYTES, index)


def encode_job(job: Job, limits: JobLimits, defaults: Job, *, index: int | None = None) -> EncodedJob:
    """Check a job against the limits and encode it; `defaults` fills its unset `max_attempts` and `result_ttl_s`.

    Raises InvalidInput or PayloadTooLarge, naming the position (`index` in a bulk call), the size and the limit.
    """
    _check_choices(job, index)
    input_bytes = _check_inputs(job.inputs, limits, index)
    metadata_bytes = _metadata_bytes(job.metadata, limits, index)
    if input_bytes + metadata_bytes > limits.max_payload_bytes:
        raise _too_large("inputs and metadata together have", input_bytes + metadata_bytes, limits, index)
    try:
        payload = encode_payload(Payload(job.inputs, job.task, job.metadata, job.options), limits)
    except CodecError as error:
        raise InvalidInput(f"inputs and metadata together: {error}{_at(index)}", index=index) from None
    attempts = job.max_attempts if job.max_attempts is not None else defaults.max_attempts
    result_ttl_s = job.result_ttl_s if job.result_ttl_s is not None else defaults.result_ttl_s
    return EncodedJob(
        id=new_job_id() if job.id is None else check_job_id(job.id, index=index),
        lane=job.lane,
        payload=payload,
        digest=blake2b(payload, digest_size=DIGEST_BYTES).digest(),
        length_hint=-(-input_bytes // 4),
        delay_ms=_milliseconds("delay_s", job.delay_s, index),
        expires_ms=_time_limit_ms("expires_s", job.expires_s, index),
        max_attempts=1 if attempts is None else attempts,
        result_ttl_ms=_result_ttl_ms(0.0 if result_ttl_s is None else result_ttl_s, index),
        deadline_ms=_time_limit_ms("deadline_s", job.deadline_s, index),
        tenant="" if job.tenant is None else _checked_name("a tenant", job.tenant, MAX_TENANT_BYTES, index),
    )


def encode_payload(payload: Payload, limits: JobLimits) -> bytes:
    """Encode what the worker needs; equal payloads give equal bytes whatever the order of their metadata."""
    fields: dict[str, Any] = {"i": [_plain_input(item) for item in payload.inputs]}
    if payload.task is not None:
        fields["t"] = payload.task
    if options := payload.options.to_wire():
        fields["o"] = _in_order(options)
    if payload.metadata:
        fields["m"] = _in_order(dict(payload.metadata))
    return codec.pack(fields, max_bytes=limits.max_wire_bytes)


def decode_payload(data: bytes, limits: JobLimits) -> Payload:
    """Decode and check a payload as a worker must: whoever wrote it.

    Raises CodecError for everything that `encode_payload` could not have made within the limits.
    """
    fields = codec.unpack(data, max_bytes=limits.max_wire_bytes)
    raw, task, metadata = fields.pop("i", None), fields.pop("t", None), fields.pop("m", {})
    options = fields.pop("o", {})
    if fields:
        raise CodecError("a payload has unknown fields")
    if not isinstance(raw, list) or not 1 <= len(raw) <= limits.max_inputs:
        raise CodecError(f"a payload needs a list of 1 to {limits.max_inputs} inputs")
    if task is not None and task not in TASKS:
        raise CodecError("a payload names an unknown task")
    if not isinstance(metadata, dict):
        raise CodecError("a payload's metadata is not a map")
    if not isinstance(options, dict):
        raise CodecError("a payload's options are not a map")
    return Payload(tuple(_decode_input(item) for item in raw), task, metadata, _read_options(options))


def _read_options(options: Mapping[str, Any]) -> EmbedOptions:
    try:
        return EmbedOptions.from_wire(options)
    except InvalidInput as error:
        raise CodecError(str(error)) from error


def _plain_input(item: Input) -> str | list[str]:
    """Give subclasses of str, such as numpy's, their plain form, which is all that the codec takes."""
    if isinstance(item, str):
        return str.__str__(item)
    return [str.__str__(text) for text in item]


def _in_order(value: Any) -> Any:
    """Return plain data with the keys of all maps sorted, so that equal data give equal bytes."""
    if type(value) is dict:
        return {key: _in_order(value[key]) for key in sorted(value)}
    return [_in_order(item) for item in value] if type(value) is list else value


def _decode_input(item: object) -> Input:
    if isinstance(item, str):
        return item
    if isinstance(item, list) and len(item) == 2 and all(isinstance(text, str) for text in item):
        return (item[0], item[1])
    raise CodecError("an input is neither a text nor a pair of texts")


def _check_choices(job: Job, index: int | None) -> None:
    if job.lane not in LANES:
        raise InvalidInput(f"lane {job.lane!r} is not one of {', '.join(LANES)}{_at(index)}", index=index)
    if job.task is not None and job.task not in TASKS:
        raise InvalidInput(f"task {job.task!r} is not one of {', '.join(TASKS)}{_at(index)}", index=index)
    options: object = job.options
    if not isinstance(options, EmbedOptions):
        raise InvalidInput(f"options are a {type(options).__name__}, not EmbedOptions{_at(index)}", index=index)
    if job.task not in {None, "embed"} and job.options != DEFAULT_OPTIONS:
        raise InvalidInput(f"task {job.task!r} takes no EmbedOptions{_at(index)}", index=index)
    attempts = job.max_attempts
    if attempts is not None and (type(attempts) is not int or not 1 <= attempts <= 1000):
        raise InvalidInput(f"max_attempts {attempts!r} is not 1 to 1000{_at(index)}", index=index)


def _check_inputs(inputs: Sequence[Input], limits: JobLimits, index: int | None) -> int:
    """Return the inputs' size in bytes of UTF-8."""
    if not isinstance(inputs, tuple | list):
        message = f"a job's inputs are a {type(inputs).__name__}, not a tuple{_at(index)}"
        raise InvalidInput(message, index=index)
    if not inputs:
        raise InvalidInput(f"a job needs at least one input{_at(index)}", index=index)
    if len(inputs) > limits.max_inputs:
        message = f"a job has {len(inputs)} inputs, over the limit of {limits.max_inputs}{_at(index)}"
        raise PayloadTooLarge(message, size=len(inputs), limit=limits.max_inputs, index=index)
    size = 0
    for position, item in enumerate(inputs):
        for text in (item,) if isinstance(item, str) else _pair(item, position, index):
            size += _text_bytes(text, position, limits, index)
    if size > limits.max_payload_bytes:
        raise _too_large("inputs have", size, limits, index)
    return size


def _pair(item: object, position: int, index: int | None) -> tuple[str, str]:
    if isinstance(item, tuple) and len(item) == 2 and all(isinstance(text, str) for text in item):
        return item
    message = f"input {position} is a {type(item).__name__}, not a str or a pair of str{_at(index)}"
    raise InvalidInput(message, index=index)


def _text_bytes(text: str, position: int, limits: JobLimits, index: int | None) -> int:
    """Count without encoding what is certainly too large: a text has at least as many bytes as characters."""
    if len(text) > limits.max_payload_bytes:
        raise _too_large(f"input {position} has at least", len(text), limits, index)
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        message = f"input {position} has a lone surrogate at character {error.start}{_at(index)}"
        raise InvalidInput(message, index=index) from None


def _metadata_bytes(metadata: Metadata, limits: JobLimits, index: int | None) -> int:
    """Return the metadata's encoded size. Like a text, it is not encoded if it is certainly too large."""
    if not isinstance(metadata, Mapping):
        raise InvalidInput(f"metadata is a {type(metadata).__name__}, not a mapping{_at(index)}", index=index)
    if not metadata:
        return 0
    try:
        return len(codec.pack({"m": dict(metadata)}, max_bytes=limits.max_payload_bytes))
    except MessageTooLarge as error:
        raise _too_large("metadata has at least", error.size, limits, index) from None
    except CodecError as error:
        raise InvalidInput(f"metadata: {error}{_at(index)}", index=index) from None


def _too_large(what: str, size: int, limits: JobLimits, index: int | None) -> PayloadTooLarge:
    limit = limits.max_payload_bytes
    message = f"{what} {size} bytes, over the limit max_payload_bytes = {limit}{_at(index)}"
    return PayloadTooLarge(message, size=size, limit=limit, index=index)


def _checked_name(what: str, name: object, most: int, index: int | None) -> str:
    if not isinstance(name, str):
        raise InvalidInput(f"{what} must be a str, not {type(name).__name__}{_at(index)}", index=index)
    if len(name) > most:
        raise InvalidInput(f"{what} has more than {most} bytes{_at(index)}", index=index)
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidInput(f"{what} has a lone surrogate{_at(index)}", index=index) from None
    if not 1 <= size <= most:
        raise InvalidInput(f"{what} has {size} bytes, not 1 to {most}{_at(index)}", index=index)
    if _FORBIDDEN_IN_ID.search(name):
        raise InvalidInput(f"{what}, {name!r}, has a space or a control character{_at(index)}", index=index)
    return name


def _milliseconds(name: str, seconds: object, index: int | None) -> int:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1e9:
        raise InvalidInput(f"{name} {seconds!r} is not a number of seconds from 0 to 1e9{_at(index)}", index=index)
    return round(seconds * 1000)


def _time_limit_ms(name: str, seconds: float | None, index: int | None) -> int:
    """Return 0 for no limit, and at least 1 for any."""
    return 0 if seconds is None else max(1, _milliseconds(name, seconds, index))


def _result_ttl_ms(seconds: float, index: int | None) -> int:
    """Keep the shortest TTL from being rounded to 0, which means for ever."""
    milliseconds = _milliseconds("result_ttl_s", seconds, index)
    return max(1, milliseconds) if seconds else milliseconds


def _at(index: int | None) -> str:
    return "" if index is None else f" (job {index})"
