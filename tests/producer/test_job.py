from __future__ import annotations

import time
import tracemalloc
from contextlib import suppress
from typing import Any, cast

import msgpack
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cordwood.errors import CodecError, InvalidInput, PayloadTooLarge
from cordwood.job import (
    EncodedJob,
    Input,
    Job,
    JobLimits,
    Payload,
    check_job_id,
    decode_payload,
    encode_job,
    encode_payload,
    new_job_id,
)

MIB = 1_048_576
LIMITS = JobLimits(max_payload_bytes=MIB, max_inputs=256)
DEFAULTS = Job(inputs=(), max_attempts=5, result_ttl_s=3600.0)
EMOJI = "🎉"
brisk = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
inputs = st.lists(st.one_of(texts, st.tuples(texts, texts)), min_size=1, max_size=6).map(tuple)
plain = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)
metadata = st.dictionaries(texts, plain, max_size=4)


def encoded(*job_inputs: Input, limits: JobLimits = LIMITS, index: int | None = None, **fields: Any) -> EncodedJob:
    """Check and encode a job of these inputs."""
    return encode_job(Job(inputs=job_inputs, **fields), limits, DEFAULTS, index=index)


@brisk
@given(inputs=inputs, task=st.sampled_from([None, "embed", "rerank"]), metadata=metadata)
def test_what_is_encoded_is_what_the_worker_reads(
    inputs: tuple[Input, ...], task: str | None, metadata: dict[str, Any]
) -> None:
    """Inputs, pairs as pairs, the task and the metadata."""
    job = encoded(*inputs, task=task, metadata=metadata)
    assert decode_payload(job.payload, LIMITS) == Payload(inputs, task, metadata)


@brisk
@given(data=st.binary(max_size=200), body=st.dictionaries(st.sampled_from("itmx"), plain, max_size=4))
def test_hostile_payloads_raise_codec_error_and_nothing_else(data: bytes, body: dict[str, Any]) -> None:
    """Whoever wrote it: random bytes, and messages with the right fields of the wrong types."""
    for hostile in (data, cast("bytes", msgpack.packb({"v": 1, **body}))):
        with suppress(CodecError):
            assert decode_payload(hostile, LIMITS).inputs


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"i": []},
        {"i": "text"},
        {"i": [1]},
        {"i": [["a"]]},
        {"i": [["a", "b", "c"]]},
        {"i": [["a", 1]]},
        {"i": [["a", b"b"]]},
        {"i": ["x"] * 257},
        {"i": ["x"], "t": "translate"},
        {"i": ["x"], "t": 5},
        {"i": ["x"], "m": []},
        {"i": ["x"], "z": 1},
    ],
    ids=lambda body: repr(body)[:40],
)
def test_a_payload_that_no_client_makes_is_refused(body: dict[str, Any]) -> None:
    """No inputs, too many, of other types, an unknown task, fields of another version."""
    with pytest.raises(CodecError):
        decode_payload(cast("bytes", msgpack.packb({"v": 1, **body})), LIMITS)


@pytest.mark.parametrize("unit", ["a", EMOJI], ids=["ascii", "emoji"])
@pytest.mark.parametrize("over", [-1, 0, 1])
def test_c29_the_limit_counts_utf_8_bytes_exactly(unit: str, over: int) -> None:
    """One byte less and the limit itself are accepted, one byte more is refused with the limit and the size."""
    text = unit * (MIB // len(unit.encode()) - 1)
    text += "b" * (MIB + over - len(text.encode()))
    assert len(text.encode()) == MIB + over
    if over <= 0:
        job = encoded(text)
        assert decode_payload(job.payload, LIMITS).inputs == (text,)
        assert job.length_hint == -(-(MIB + over) // 4)
        return
    with pytest.raises(PayloadTooLarge, match=f"{MIB + 1} bytes.*max_payload_bytes = {MIB}") as caught:
        encoded(text, index=7)
    assert (caught.value.size, caught.value.limit, caught.value.index) == (MIB + 1, MIB, 7)


def test_c29_all_inputs_and_the_metadata_count_together() -> None:
    """Neither many small texts nor metadata beside them pass under the limit."""
    half = "a" * (MIB // 2)
    assert encoded(half, half).length_hint == MIB // 4
    with pytest.raises(PayloadTooLarge, match=f"inputs have {MIB + 1} bytes"):
        encoded(half, (half, "b"))
    with pytest.raises(PayloadTooLarge, match="inputs and metadata together"):
        encoded(half, metadata={"a": half})


def test_c29_metadata_alone_over_the_limit_is_refused() -> None:
    """As one long text, in bytes and not in characters, and as many small values."""
    with pytest.raises(PayloadTooLarge, match="metadata has at least"):
        encoded("x", metadata={"a": "b" * MIB})
    with pytest.raises(PayloadTooLarge, match="metadata has at least"):
        encoded("x", metadata={"a": EMOJI * (MIB // 4)})
    with pytest.raises(PayloadTooLarge, match="metadata has at least"):
        encoded("x", metadata={f"{number:0300}": number for number in range(4_000)})


def test_c29_a_text_of_600_mib_is_refused_at_once_and_without_a_copy() -> None:
    """In under 2 s and next to no memory, and a small job is encoded right after."""
    huge = "a" * (600 * MIB)
    tracemalloc.start()
    try:
        began_s = time.monotonic()
        with pytest.raises(PayloadTooLarge, match=f"at least {600 * MIB} bytes"):
            encoded(huge)
        with pytest.raises(PayloadTooLarge):
            encoded("x", metadata={"text": huge})
        with pytest.raises(InvalidInput):
            encoded("x", id=huge)
        assert time.monotonic() - began_s < 2
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()
    assert encoded("small").payload


def test_c29_too_many_inputs_are_refused() -> None:
    """The count, like the size, is named with its limit."""
    assert encoded(*["x"] * 256).payload
    with pytest.raises(PayloadTooLarge, match="257 inputs, over the limit of 256") as caught:
        encoded(*["x"] * 257)
    assert (caught.value.size, caught.value.limit) == (257, 256)


@pytest.mark.parametrize(
    ("job_inputs", "where"),
    [
        (("fine", "abc\ud83d"), "input 1 has a lone surrogate at character 3"),
        (("\udc80",), "input 0 has a lone surrogate at character 0"),
        ((("q", "ab\udfffc"),), "input 0 has a lone surrogate at character 2"),
    ],
)
def test_a_lone_surrogate_is_named_with_its_position(job_inputs: tuple[Input, ...], where: str) -> None:
    """It would bring down a whole tokenizer batch."""
    with pytest.raises(InvalidInput, match=where) as caught:
        encoded(*job_inputs, index=3)
    assert "(job 3)" in str(caught.value)
    assert caught.value.index == 3


@pytest.mark.parametrize(
    "job_inputs",
    [
        (),
        "abc",
        ["a", 1],
        (b"bytes",),
        (("a",),),
        (("a", "b", "c"),),
        (("a", None),),
        (["a", "b"],),
        (None,),
        5,
        {"a": 1},
    ],
    ids=repr,
)
def test_inputs_of_other_types_are_refused(job_inputs: Any) -> None:
    """A single text in place of the tuple too: it would be taken letter by letter."""
    with pytest.raises(InvalidInput):
        encode_job(Job(inputs=job_inputs), LIMITS, DEFAULTS)


def test_texts_of_numpy_are_texts() -> None:
    """Iterating over an array of texts gives a subclass of str, which is sent as plain text."""
    array = np.array(["one", "two"])
    job = encoded(*array, (array[0], array[1]))
    assert decode_payload(job.payload, LIMITS).inputs == ("one", "two", ("one", "two"))


BAD_METADATA: dict[str, Any] = {
    "number as key": {1: "a"},
    "list": [("a", 1)],
    "text": "abc",
    "None": None,
    "tuple inside": {"a": (1, 2)},
    "set inside": {"a": {1}},
    "number as key inside": {"a": {1: 2}},
    "lone surrogate": {"a": "\ud83d"},
    "too deep": {"a": [[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]},
    "too many entries": {"a": [0] * 5_001},
    "too many values": {"a": [[0] * 4_000] * 30},
    "large number": {"a": 2**64},
}


@pytest.mark.parametrize("name", BAD_METADATA)
def test_metadata_that_cannot_come_back_as_it_was_is_refused(name: str) -> None:
    """With an InvalidInput that says that it is the metadata."""
    with pytest.raises(InvalidInput, match="metadata"):
        encoded("x", metadata=BAD_METADATA[name])


def test_equal_metadata_in_another_order_give_the_same_digest() -> None:
    """At every level, so that submitting the same job again is no conflict; other contents are one."""
    one = {"b": [{"y": 1, "x": 2}], "a": {"d": 1, "c": {"f": 1, "e": 2}}}
    other = {"a": {"c": {"e": 2, "f": 1}, "d": 1}, "b": [{"x": 2, "y": 1}]}
    assert encoded("x", metadata=one).digest == encoded("x", metadata=other).digest
    different = [
        encoded("x", metadata={**one, "a": 1}),
        encoded("x"),
        encoded("y"),
        encoded("x", "x"),
        encoded(("x", "x")),
        encoded("x", task="embed"),
    ]
    assert len({job.digest for job in different}) == len(different)


def test_payloads_are_the_same_from_both_sides() -> None:
    """Decoding and encoding again gives the same bytes."""
    job = encoded("a", ("b", "c"), task="rerank", metadata={"z": 1, "a": [None]})
    assert encode_payload(decode_payload(job.payload, LIMITS), LIMITS) == job.payload


@pytest.mark.parametrize("job_id", ["a", "x" * 128, "é" * 64, "{x}", "ID:1/2?*[a]", "🎉"])
def test_ids_of_1_to_128_bytes_are_accepted(job_id: str) -> None:
    """Any printable text, counted in bytes."""
    assert check_job_id(job_id) == job_id
    assert encoded("x", id=job_id).id == job_id


@pytest.mark.parametrize(
    "job_id",
    [
        "",
        "x" * 129,
        "é" * 65,
        "a b",
        "a\n",
        "\t",
        "a\x00",
        "\x7f",
        "a\x85",
        "a\xa0b",
        "\u2028",
        "\u3000",
        "\u202e",
        "\ud83d",
    ],
    ids=ascii,
)
def test_other_ids_are_refused(job_id: str) -> None:
    """Empty, too long, with spaces, control characters or what reorders text on a terminal."""
    with pytest.raises(InvalidInput, match="job ID") as caught:
        encoded("x", id=job_id, index=2)
    assert caught.value.index == 2


@pytest.mark.parametrize("job_id", [1, b"bytes", ("a",), 1.5])
def test_ids_of_other_types_are_refused(job_id: Any) -> None:
    """An ID is text."""
    with pytest.raises(InvalidInput, match="must be a str"):
        encoded("x", id=job_id)


@given(earlier=st.integers(0, 2**48 - 2), gap=st.integers(1, 10**9))
def test_new_ids_sort_by_time(earlier: int, gap: int) -> None:
    """To the millisecond."""
    later = min(earlier + gap, 2**48 - 1)
    assert new_job_id(earlier) < new_job_id(later)


def test_new_ids_are_short_and_differ() -> None:
    """26 characters that every rule for IDs accepts, random within one millisecond."""
    made = {new_job_id(1_700_000_000_000) for _ in range(2_000)}
    assert len(made) == 2_000
    assert all(len(job_id) == 26 and check_job_id(job_id).isalnum() for job_id in made)
    assert encoded("x").id != encoded("x").id


def test_times_and_attempts_become_numbers_for_the_server() -> None:
    """Milliseconds; the client's defaults where the job says nothing; the shortest is never taken for `never`."""
    job = encoded("x")
    assert (job.delay_ms, job.deadline_ms, job.expires_ms, job.max_attempts, job.result_ttl_ms) == (
        0,
        0,
        0,
        5,
        3_600_000,
    )
    job = encoded("x", delay_s=1.5, deadline_s=0.0001, expires_s=0.0001, max_attempts=2, result_ttl_s=0.0001)
    assert (job.delay_ms, job.deadline_ms, job.expires_ms, job.max_attempts, job.result_ttl_ms) == (1500, 1, 1, 2, 1)
    assert encoded("x", result_ttl_s=0).result_ttl_ms == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"lane": "urgent"},
        {"lane": "again"},
        {"task": "translate"},
        {"max_attempts": 0},
        {"max_attempts": 1001},
        {"max_attempts": True},
        {"max_attempts": 1.0},
        {"delay_s": -1},
        {"deadline_s": -1},
        {"deadline_s": float("nan")},
        {"delay_s": float("nan")},
        {"delay_s": float("inf")},
        {"expires_s": "1"},
        {"result_ttl_s": True},
        {"result_ttl_s": 1e9},
    ],
    ids=repr,
)
def test_options_out_of_range_are_refused(fields: dict[str, Any]) -> None:
    """Each names itself and its value."""
    name, value = next(iter(fields.items()))
    with pytest.raises(InvalidInput, match=name) as caught:
        encoded("x", index=1, **fields)
    assert repr(value) in str(caught.value)
