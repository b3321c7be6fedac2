"""What may be asked of an embed job, and how it crosses the wire."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.errors import CodecError, InvalidInput
from cordwood.job import Job, JobLimits, decode_payload, encode_job
from cordwood.options import DEFAULT_OPTIONS, OUTPUTS, TRUNCATIONS, EmbedOptions

LIMITS = JobLimits(max_payload_bytes=10_000, max_inputs=4)
DEFAULTS = Job(inputs=(), max_attempts=1)

OPTIONS = st.builds(
    EmbedOptions,
    prompt=st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    truncation=st.none() | st.sampled_from(TRUNCATIONS),
    dim=st.none() | st.integers(1, 4096),
    normalize=st.booleans(),
    output=st.sampled_from(OUTPUTS),
)


@given(OPTIONS)
def test_options_come_to_the_worker_as_they_are(options: EmbedOptions) -> None:
    """And only what differs from the defaults is sent."""
    job = encode_job(Job(inputs=("x",), options=options), LIMITS, DEFAULTS)
    assert decode_payload(job.payload, LIMITS).options == options
    plain = encode_job(Job(inputs=("x",)), LIMITS, DEFAULTS)
    assert (job.payload == plain.payload) == (options == DEFAULT_OPTIONS)


@pytest.mark.parametrize(
    ("given_options", "why"),
    [
        ({"prompt": 7}, "prompt must be a str, not int"),
        ({"prompt": "x" * 2049}, "2049 bytes, over the limit of 2048"),
        ({"prompt_name": "\udc80"}, "prompt_name has a lone surrogate"),
        ({"prompt": "a", "prompt_name": "b"}, "give one of them"),
        ({"truncation": "middle"}, "'middle' is not one of right, left, refuse"),
        ({"dim": 0}, "dim 0"),
        ({"dim": True}, "dim True"),
        ({"dim": 1.5}, "dim 1.5"),
        ({"normalize": 1}, "normalize 1"),
        ({"output": "int4"}, "'int4' is not one of float32"),
        ({"pooling": "max"}, "no option 'pooling'"),
    ],
)
def test_what_cannot_be_asked_is_refused_on_both_sides(given_options: dict[str, Any], why: str) -> None:
    """Where the options are made, and where a worker reads them, whoever wrote them."""
    with pytest.raises(InvalidInput, match=why):
        EmbedOptions.from_wire(given_options)


def test_options_of_another_kind_or_for_another_task_are_refused() -> None:
    """Before anything is sent, with the job's position."""
    wrong: Any = {"dim": 3}
    with pytest.raises(InvalidInput, match=r"options are a dict, not EmbedOptions \(job 2\)"):
        encode_job(Job(inputs=("x",), options=wrong), LIMITS, DEFAULTS, index=2)
    job = Job(inputs=("x",), task="classify", options=EmbedOptions(dim=3))
    with pytest.raises(InvalidInput, match="'classify' takes no EmbedOptions"):
        encode_job(job, LIMITS, DEFAULTS)


@pytest.mark.parametrize("options", [[], "x", {"dim": -1}, {"unknown": 1}])
def test_a_payload_with_bad_options_cannot_be_read(options: Any) -> None:
    """It is a codec error, as for any other part of a payload."""
    from cordwood import codec

    data = codec.pack({"i": ["x"], "o": options}, max_bytes=1000)
    with pytest.raises(CodecError):
        decode_payload(data, LIMITS)


def test_the_width_of_a_vector_follows_from_the_options() -> None:
    """Bits are packed eight to a byte."""
    assert EmbedOptions().width(384) == 384
    assert EmbedOptions(dim=100).width(384) == 100
    assert EmbedOptions(dim=500).width(384) == 384
    assert EmbedOptions(dim=100, output="binary").width(384) == 13
    assert [EmbedOptions(output=output).dtype for output in OUTPUTS] == ["float32", "float16", "int8", "uint8"]
