from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import msgpack
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cordwood.errors import (
    CodecError,
    JobCancelled,
    JobDead,
    JobError,
    JobExpired,
    JobFailed,
    JobNotFound,
    MessageTooLarge,
    SpecMismatch,
)
from cordwood.result import (
    FINAL_STATES,
    MIN_RECORD_TTL_MS,
    RECORD_FIELDS,
    SPEC_MISMATCH,
    STATES,
    Outputs,
    Result,
    decode_outputs,
    encode_outputs,
    read_outcome,
    read_record,
)

MIB = 1_048_576
brisk = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])

OUTPUTS = Outputs(
    task="embed",
    values=np.array([[0.5, -1.0], [2.0, 0.25], [0.0, 1.0]], dtype=np.float32),
    tokens=(3, 256, 7),
    truncated=(1,),
    model="a/model",
    fingerprint="0123456789abcdef",
    precision="fp32",
    metadata={"source": "page 4", "tags": ["a", {"b": None}]},
)


def record_reply(**fields: bytes | str | int) -> list[bytes | None]:
    """An HMGET reply for `RECORD_FIELDS`, None where nothing is given."""
    assert fields.keys() <= set(RECORD_FIELDS)
    given = {name: value if isinstance(value, bytes) else str(value).encode() for name, value in fields.items()}
    return [given.get(name) for name in RECORD_FIELDS]


def outcome_of(**fields: bytes | str | int) -> Any:
    """How a job with this record ended."""
    return read_outcome("j1", read_record("j1", record_reply(**fields), -1))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
def test_outputs_are_read_back_as_they_were(dtype: str) -> None:
    """Values with dtype and shape, counts, positions, names, metadata."""
    outputs = replace(OUTPUTS, values=OUTPUTS.values.astype(dtype))
    read = decode_outputs(encode_outputs(outputs, max_bytes=MIB), max_bytes=MIB)
    assert np.array_equal(read.values, outputs.values)
    assert read.values.dtype == outputs.values.dtype
    assert replace(read, values=outputs.values) == outputs


def test_c10_counts_of_numpy_are_counts() -> None:
    """What a worker counted with numpy is stored as plain numbers."""
    tokens = cast("tuple[int, ...]", tuple(np.array([3, 256, 7], dtype=np.int64)))
    outputs = replace(OUTPUTS, tokens=tokens, truncated=cast("tuple[int, ...]", (np.int32(1),)))
    read = decode_outputs(encode_outputs(outputs, max_bytes=MIB), max_bytes=MIB)
    assert (read.tokens, read.truncated) == ((3, 256, 7), (1,))


@pytest.mark.parametrize(
    "values",
    [np.zeros((2, 2)), np.zeros((4, 2)), np.zeros(()), np.array([[np.nan, 0.0]] * 3), np.array(["a", "b", "c"])],
    ids=["a row missing", "a row too many", "no rows", "non-finite", "text"],
)
def test_outputs_that_are_not_a_finite_row_for_each_input_are_refused(values: Any) -> None:
    """A result that does not match its inputs must not be stored."""
    with pytest.raises(CodecError):
        encode_outputs(replace(OUTPUTS, values=values), max_bytes=MIB)


def test_a_result_over_the_limit_is_refused() -> None:
    """In both directions."""
    encoded = encode_outputs(OUTPUTS, max_bytes=MIB)
    assert encode_outputs(OUTPUTS, max_bytes=len(encoded)) == encoded
    with pytest.raises(MessageTooLarge):
        encode_outputs(OUTPUTS, max_bytes=len(encoded) - 1)
    with pytest.raises(MessageTooLarge):
        decode_outputs(encoded, max_bytes=len(encoded) - 1)


def unpacked() -> dict[str, Any]:
    """The fields of an encoded result, version included."""
    fields: dict[str, Any] = msgpack.unpackb(encode_outputs(OUTPUTS, max_bytes=MIB))
    return fields


@pytest.mark.parametrize("name", ["v", "t", "a", "n", "m", "f", "p"])
def test_a_result_with_a_field_missing_or_of_another_type_is_refused(name: str) -> None:
    """Whoever wrote it."""
    for wrong in (None, 5, [None], {"x": 1}, b"bytes", [True, True, True], [1]):
        fields = {**unpacked(), name: wrong}
        with pytest.raises(CodecError):
            decode_outputs(cast("bytes", msgpack.packb(fields)), max_bytes=MIB)
    fields = {key: value for key, value in unpacked().items() if key != name}
    with pytest.raises(CodecError):
        decode_outputs(cast("bytes", msgpack.packb(fields)), max_bytes=MIB)


@brisk
@given(data=st.binary(max_size=100), at=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_damaged_results_raise_codec_error_and_nothing_else(data: bytes, at: int, byte: int) -> None:
    """Random bytes, and a good result with one byte changed."""
    damaged = bytearray(encode_outputs(OUTPUTS, max_bytes=MIB))
    damaged[at % len(damaged)] = byte
    for hostile in (data, bytes(damaged)):
        with suppress(CodecError):
            assert len(decode_outputs(hostile, max_bytes=MIB).values) == 3


def test_a_done_record_ends_in_its_result() -> None:
    """With the worker, the attempt and the times of the record."""
    encoded = encode_outputs(OUTPUTS, max_bytes=MIB)
    outcome = outcome_of(st="done", rs=encoded, wk="w.1.x", at=2, t0=100, t1=150, t2=175, rt=0)
    assert isinstance(outcome, Result)
    assert (outcome.job_id, outcome.worker, outcome.attempt) == ("j1", "w.1.x", 2)
    assert (outcome.submitted_ms, outcome.started_ms, outcome.finished_ms) == (100, 150, 175)
    assert outcome.vector.tolist() == [0.5, -1.0]
    assert np.array_equal(outcome.values, OUTPUTS.values)


@pytest.mark.parametrize(
    ("fields", "kind", "says"),
    [
        ({"st": "failed", "ec": "too-long", "er": "over 512"}, JobFailed, "too-long: over 512"),
        ({"st": "failed", "ec": SPEC_MISMATCH, "er": "dim 384, not 768"}, SpecMismatch, "dim 384, not 768"),
        (
            {"st": "dead", "ec": "worker-died", "er": "gone", "at": 5},
            JobDead,
            "dead after 5 attempts: worker-died: gone",
        ),
        ({"st": "cancelled"}, JobCancelled, "cancelled"),
        ({"st": "expired"}, JobExpired, "expired"),
        ({"st": "done"}, JobNotFound, "its result is gone"),
        ({"st": "done", "rs": b"\xc1"}, JobFailed, "cannot be read"),
        ({}, JobNotFound, "not known"),
        ({"st": "nonsense"}, JobNotFound, "not known"),
    ],
    ids=repr,
)
def test_every_other_end_is_a_typed_error(fields: dict[str, Any], kind: type[JobError], says: str) -> None:
    """It names the job and says why."""
    outcome = outcome_of(**fields)
    assert type(outcome) is kind
    assert outcome.job_id == "j1"
    assert "job j1" in str(outcome)
    assert says in str(outcome)


@pytest.mark.parametrize("state", sorted(STATES))
def test_a_job_has_an_outcome_exactly_when_its_state_is_final(state: str) -> None:
    """Neither early nor never."""
    record = read_record("j1", record_reply(st=state), -1)
    assert record is not None
    assert record.is_final == (state in FINAL_STATES)
    assert (read_outcome("j1", record) is not None) == record.is_final


@pytest.mark.parametrize(
    ("result_ttl_ms", "age_ms", "is_there"),
    [(2_000, 1_999, True), (2_000, 2_000, True), (2_000, 2_001, False), (2_000, 119_000, False), (0, 119_000, True)],
)
def test_c32_a_result_is_gone_when_its_own_ttl_has_passed(result_ttl_ms: int, age_ms: int, is_there: bool) -> None:
    """Though the record stays longer, so that a late repeat of a call finds it."""
    reply = record_reply(st="done", rs=encode_outputs(OUTPUTS, max_bytes=MIB), rt=result_ttl_ms)
    record = read_record("j1", reply, MIN_RECORD_TTL_MS - age_ms)
    assert (record is not None) == is_there
    outcome = read_outcome("j1", record)
    assert isinstance(outcome, Result if is_there else JobNotFound)


def test_c32_a_result_that_never_expires_is_there_without_a_ttl() -> None:
    """PTTL answers -1 then."""
    assert read_record("j1", record_reply(st="done", rt=0), -1) is not None


@pytest.mark.parametrize("number", [b"\xc2\xb2", b"\xff", b"-5", b"1.5", b"9" * 5_000, b" 7", "٣".encode(), b""])
def test_a_number_that_is_none_reads_as_zero(number: bytes) -> None:
    """Whoever wrote the record, looking at it does not fail."""
    record = read_record("j1", record_reply(st="queued", at=number, t0=number, rt=number), -1)
    assert record is not None
    assert (record.attempts, record.submitted_ms) == (0, 0)


def test_texts_of_a_record_that_are_not_utf_8_are_read_with_marks() -> None:
    """The result's bytes are left as they are."""
    record = read_record("j1", record_reply(st="failed", er=b"bad \xff byte", rs=b"\xff\x00"), -1)
    assert record is not None
    assert (record.error, record.result) == ("bad \ufffd byte", b"\xff\x00")
