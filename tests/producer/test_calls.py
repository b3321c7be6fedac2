from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood import calls
from cordwood.errors import CordwoodError, InvalidInput, JobConflict, QueueFull, ServerFull
from cordwood.job import EncodedJob, Job, JobLimits, encode_job
from cordwood.keys import queue_keys
from cordwood.result import RECORD_FIELDS
from cordwood.scripts import MAX_BYTES_PER_CALL, MAX_JOBS_PER_CALL

KEYS = queue_keys("q")
LIMITS = JobLimits(max_payload_bytes=1 << 21, max_inputs=8)
DEFAULTS = Job(inputs=(), max_attempts=3, result_ttl_s=60)


def encoded(job_id: str, size: int = 10, **fields: object) -> EncodedJob:
    """A job with a text of this many bytes."""
    return encode_job(Job(inputs=("x" * size,), id=job_id, **fields), LIMITS, DEFAULTS)  # type: ignore[arg-type]


SMALL, LARGE = encoded("small"), encoded("large", 300_000)
HUGE = encoded("huge", MAX_BYTES_PER_CALL + 1)


@given(st.lists(st.sampled_from([SMALL] * 5 + [LARGE, HUGE]), max_size=2000))
def test_jobs_are_cut_into_calls_in_order_and_within_both_limits(jobs: list[EncodedJob]) -> None:
    """No call is empty or could have taken the next job too; only a job that is too large by itself goes over."""
    chunks = list(calls.split_jobs(iter(jobs)))
    assert [job for chunk in chunks for job in chunk] == jobs
    for number, chunk in enumerate(chunks):
        size = sum(job.size for job in chunk)
        assert 1 <= len(chunk) <= MAX_JOBS_PER_CALL
        assert size <= MAX_BYTES_PER_CALL or len(chunk) == 1
        if number + 1 < len(chunks):
            following = chunks[number + 1][0]
            assert len(chunk) == MAX_JOBS_PER_CALL or size + following.size > MAX_BYTES_PER_CALL


@given(st.lists(st.integers()), st.integers(1, 10))
def test_pieces_are_full_but_the_last(items: list[int], size: int) -> None:
    """And nothing is lost."""
    pieces = list(calls.split(items, size))
    assert [item for piece in pieces for item in piece] == items
    assert all(len(piece) == size for piece in pieces[:-1])
    assert all(pieces)


def test_a_submit_passes_the_fixed_keys_then_each_record_and_what_it_needs_of_a_job() -> None:
    """In the order that the script's header names."""
    times: dict[str, Any] = {"delay_s": 1.5, "deadline_s": 0.0001, "expires_s": 2.5, "result_ttl_s": 0}
    job = encoded("mine", lane="high", tenant="acme", max_attempts=7, **times)
    call = calls.submit_call(KEYS, [SMALL, job], max_depth=9, waiter_mask=4)
    assert (call.name, call.patient) == ("submit", True)
    assert call.keys == (*KEYS.fixed, KEYS.job("small"), KEYS.job("mine"))
    assert call.args[:2] == (9, 4)
    assert call.args[11:13] == (0, ""), "neither deadline nor tenant"
    assert call.args[13:] == ("mine", "high", job.length_hint, job.payload, job.digest, 1500, 2500, 7, 0, 1, "acme")


def test_each_answer_of_submit_is_read_for_its_job() -> None:
    """Accepted with a state, or with an error of its own."""
    jobs = [encoded(job_id) for job_id in ("a", "b", "c", "d")]
    read = calls.read_submissions(jobs, [b"new", b"dup:running", b"conflict", b"bad"])
    assert [(item.job_id, item.state, item.accepted) for item in read] == [
        ("a", "new", True),
        ("b", "running", True),
        ("c", "", False),
        ("d", "", False),
    ]
    assert [type(item.error) for item in read[2:]] == [JobConflict, InvalidInput]
    for answer, kind in ((b"full:depth", QueueFull), (b"full:memory", ServerFull)):
        assert {type(item.error) for item in calls.read_submissions(jobs, answer)} == {kind}


@pytest.mark.parametrize("reply", [None, 5, [b"new"], []])
def test_a_reply_of_another_length_is_an_error(reply: object) -> None:
    """Answers must not slide to other jobs (invariant 4)."""
    with pytest.raises(CordwoodError, match="for 2 jobs"):
        calls.read_submissions([SMALL, LARGE], reply)
    with pytest.raises(CordwoodError, match="for 2 jobs"):
        calls.read_watched(["a", "b"], reply)


def test_watched_jobs_are_read_in_order_and_the_missing_are_none() -> None:
    """So are keys that hold something else."""
    there = [60_000, b"queued", *[None] * (len(RECORD_FIELDS) - 1)]
    gone = [-2, *[None] * len(RECORD_FIELDS)]
    records = calls.read_watched(["a", "b", "c"], [there, gone, [-2]])
    assert [record and (record.job_id, record.state) for record in records] == [("a", "queued"), None, None]


def test_a_watch_asks_for_the_record_and_only_with_a_mask_to_be_told() -> None:
    """Waits ask hastily: they repeat by themselves."""
    call = calls.watch_call(KEYS, ["a"], waiter_mask=8, patient=False)
    assert (call.name, call.args, call.patient) == ("watch", (8, *RECORD_FIELDS), False)
    assert call.keys[-1] == KEYS.job("a")


def test_sweeps_name_the_jobs_and_pass_their_records() -> None:
    """All three take the same."""
    for name in ("cancel", "expire", "promote"):
        call = calls.sweep_call(name, KEYS, ["a", "b"])
        assert (call.name, call.keys[-2:], call.args) == (name, (KEYS.job("a"), KEYS.job("b")), ("a", "b"))
