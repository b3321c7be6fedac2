import os
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.core import BYTES_PER_JOB, TEXTS_PER_JOB, Core, as_job, as_jobs, bundles, check_vectors, succeeded
from cordwood.errors import CordwoodError, InvalidInput, JobCancelled, PayloadTooLarge, SpecMismatch
from cordwood.job import Job, JobLimits
from cordwood.result import Outputs, Result
from cordwood.settings import Settings

LIMITS = JobLimits(max_payload_bytes=1_048_576, max_inputs=256)


def result(rows: int, dim: int = 4, fingerprint: str = "f") -> Result:
    """A result with this many rows."""
    outputs = Outputs(
        task="embed",
        values=np.zeros((rows, dim), dtype=np.float32),
        tokens=(1,) * rows,
        truncated=(),
        model="m",
        fingerprint=fingerprint,
        precision="fp32",
    )
    return Result(job_id="j", outputs=outputs, worker="w", attempt=1, submitted_ms=1, started_ms=2, finished_ms=3)


def core() -> Core:
    """A client's core on the queue q."""
    return Core(Settings(), "q", lambda: 0.0)


@pytest.mark.parametrize(
    ("work", "inputs"),
    [
        ("text", ("text",)),
        (("query", "document"), (("query", "document"),)),
        (["a", "b"], ("a", "b")),
        (["a"], ("a",)),
        (("a", "b", "c"), ("a", "b", "c")),
        ([("q", "d"), "a"], (("q", "d"), "a")),
        ([], ()),
    ],
)
def test_work_becomes_a_job_with_these_inputs(work: object, inputs: tuple[object, ...]) -> None:
    """A tuple of two is one pair, every other sequence is a list of inputs."""
    job = as_job(work, "mine", {"lane": "low"})
    assert (job.inputs, job.id, job.lane) == (inputs, "mine", "low")


def test_a_whole_job_is_taken_as_it_is_and_changed_only_where_told() -> None:
    """An ID and options of the call win."""
    job = Job(inputs=("a",), id="own", lane="high", delay_s=5)
    assert as_job(job, None, {}) is job
    changed = as_job(job, "other", {"lane": "low"})
    assert (changed.id, changed.lane, changed.delay_s, changed.inputs) == ("other", "low", 5, ("a",))


@pytest.mark.parametrize("work", [None, 5, b"bytes", bytearray(b"x"), {"a": 1}, {"a"}, 1.5])
def test_what_is_no_work_is_refused_with_its_position(work: object) -> None:
    """The type is named, the contents are not."""
    with pytest.raises(InvalidInput, match=f"a {type(work).__name__} is not a text"):
        as_job(work, None, {})
    with pytest.raises(InvalidInput, match=r"\(job 1\)") as caught:
        as_jobs(cast("Any", ["fine", work]), {})
    assert caught.value.index == 1


def test_an_unknown_option_is_an_error() -> None:
    """A slip must not be lost in silence."""
    with pytest.raises(TypeError, match="prioritty"):
        as_job("text", None, cast("Any", {"prioritty": "high"}))


@given(
    st.lists(st.sampled_from(["a", "word " * 100, "ü" * 500, "x" * 40_000, "\U0001f332" * 10_000]), max_size=120),
    st.integers(1, 64),
    st.sampled_from([40_000, 50_000, 1_048_576]),
)
def test_texts_are_bundled_in_order_and_within_every_limit(texts: list[str], max_inputs: int, max_bytes: int) -> None:
    """A text that fits a job alone always finds one, and no bundle could have taken the next text too."""
    limits = JobLimits(max_bytes, max_inputs)
    groups = bundles(texts, limits) if texts else []
    assert [text for group in groups for text in group] == texts
    for number, group in enumerate(groups):
        size = sum(len(text.encode()) for text in group)
        assert 1 <= len(group) <= min(TEXTS_PER_JOB, max_inputs)
        assert size <= max_bytes
        assert size <= BYTES_PER_JOB or len(group) == 1
        if number + 1 < len(groups):
            following = len(groups[number + 1][0].encode())
            assert len(group) == min(TEXTS_PER_JOB, max_inputs) or size + following > min(BYTES_PER_JOB, max_bytes)


def test_a_text_that_no_job_may_hold_is_named_by_its_own_position() -> None:
    """Not by that of a job, of which the caller knows nothing."""
    fine = ["x"] * 40
    with pytest.raises(PayloadTooLarge, match="text 40 has at least 101 bytes") as large:
        bundles([*fine, "x" * 101], JobLimits(100, 8))
    assert (large.value.index, large.value.size, large.value.limit) == (40, 101, 100)
    with pytest.raises(PayloadTooLarge, match="at least 104 bytes"):
        bundles(["\U0001f332" * 26], JobLimits(100, 8))
    with pytest.raises(InvalidInput, match="text 40 has a lone surrogate at character 1") as surrogate:
        bundles([*fine, "x\ud800"], LIMITS)
    with pytest.raises(InvalidInput, match="text 40 is a int") as number:
        bundles([*fine, cast("str", 5)], LIMITS)
    assert surrogate.value.index == number.value.index == 40


def test_a_lone_text_is_not_taken_for_a_list_of_its_letters() -> None:
    """By no call that takes many."""
    with pytest.raises(InvalidInput, match="put a single text into a list"):
        next(core().embed(None, "text", None, _Signal(), {}))
    with pytest.raises(InvalidInput, match="iterable of jobs"):
        as_jobs("text", {})


class _Signal:
    def set(self) -> None:
        """Nobody waits."""


def test_vectors_must_be_one_a_text_and_all_of_one_model() -> None:
    """Otherwise rows would be counted to other texts, or spaces mixed (invariant 4)."""
    job = Job(inputs=("a", "b"))
    check_vectors(job, result(2), result(7))
    for other in (result(3), result(2, dim=5), result(2, fingerprint="g")):
        with pytest.raises(SpecMismatch):
            check_vectors(job, other, result(7))


def test_an_outcome_is_given_or_raised() -> None:
    """The error is the very object that `wait_many` returns."""
    fine, error = result(1), JobCancelled("j", "cancelled")
    assert succeeded(fine) is fine
    with pytest.raises(JobCancelled) as caught:
        succeeded(error)
    assert caught.value is error


def test_queues_have_their_own_keys_and_waits() -> None:
    """None is the client's own queue, and a name that cannot be is refused."""
    made = core()
    assert made.keys(None) is made.keys("q")
    assert made.keys("other").prefix == "cw:{other}:"
    assert made.table(made.keys("q")) is made.table(made.keys(None))
    assert made.table(made.keys("q")) is not made.table(made.keys("other"))
    for name in ("two words", "", "{q}", 5):
        with pytest.raises(InvalidInput):
            made.keys(cast("str", name))


def test_a_forked_child_has_waits_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tickets and locks of the parent's threads would never be let go in the child."""
    made = core()
    parents = made.table(made.keys(None))
    monkeypatch.setattr(os, "getpid", lambda: 1)
    assert made.table(made.keys(None)) is not parents


def test_a_closed_core_wakes_all_waits_and_lets_no_step_through() -> None:
    """So that they end."""
    made = core()
    made.check_open()
    table = made.table(made.keys(None))
    with made.wait(None, ["a"], None, _Signal()) as wait:
        made.close()
        assert table.take(wait._ticket) == ([], True)
    with pytest.raises(CordwoodError, match="the client was closed"):
        made.check_open()
