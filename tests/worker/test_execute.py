from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cordwood.job import Input
from cordwood.options import DEFAULT_OPTIONS, EmbedOptions
from cordwood.settings import BatchBudget
from cordwood_worker.backends import DeviceBroken, DeviceOutOfMemory, Spec, WarmUp
from cordwood_worker.batch import Batch, Row, RowFailure, RowOutput, Tokens
from cordwood_worker.execute import execute
from tests.worker.rows import text_of, text_row

brisk = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
DIM = 3
Behaviour = Callable[[Batch], Any]


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Only references that are given up free memory."""
    gc.disable()
    yield
    gc.enable()


def right_values(row: Row) -> list[float]:
    """Values that no other row has."""
    return [float(row.index), float(row.length), float(sum(row.tokens.ids))]


def right_outputs(batch: Batch) -> NDArray[np.float32]:
    """What a healthy model answers."""
    return np.array([right_values(row) for row in batch.rows], dtype=np.float32)


class ScriptedBackend:
    """A backend that answers as it is told, and notes the batches that it was given."""

    def __init__(self, behaviour: Behaviour = right_outputs) -> None:
        self.spec = Spec(
            task="embed",
            model="m",
            fingerprint="f",
            dim=DIM,
            max_tokens=512,
            precision="fp32",
            device="cpu",
            backend="b",
        )
        self.batches: list[Batch] = []
        self._behaviour = behaviour

    def tokenise(self, inputs: Sequence[Input], options: EmbedOptions = DEFAULT_OPTIONS) -> list[Tokens]:
        """Not part of running."""
        raise NotImplementedError

    def run(self, batch: Batch) -> NDArray[np.float32]:
        """Do as told."""
        self.batches.append(batch)
        outputs: NDArray[np.float32] = self._behaviour(batch)
        return outputs

    def warm_up(self, budget: BatchBudget) -> WarmUp:
        """Not part of running."""
        raise NotImplementedError


def run_texts(behaviour: Behaviour, texts: Sequence[str]) -> tuple[list[RowOutput | RowFailure], ScriptedBackend]:
    """Execute one batch of these texts, and check that the outcomes stand in the order of the rows."""
    backend = ScriptedBackend(behaviour)
    rows = tuple(text_row(number, text) for number, text in enumerate(texts))
    outcomes = execute(backend, Batch(rows))
    assert [outcome.row for outcome in outcomes] == list(rows)
    return outcomes, backend


def check_outputs(outcomes: Sequence[RowOutput | RowFailure], *, failed: dict[int, str]) -> None:
    """Exactly these rows failed, with these codes, and each of the others has its own values."""
    codes = {outcome.row.index: outcome.code for outcome in outcomes if isinstance(outcome, RowFailure)}
    assert codes == failed
    for outcome in outcomes:
        if isinstance(outcome, RowOutput):
            assert outcome.values.tolist() == right_values(outcome.row)
            assert (outcome.values.dtype, outcome.values.shape) == (np.dtype(np.float32), (DIM,))


def test_a_healthy_batch_runs_once() -> None:
    """One run, and each row gets its own values."""
    outcomes, backend = run_texts(right_outputs, ["one", "three", "seventeen"])
    check_outputs(outcomes, failed={})
    assert len(backend.batches) == 1


def test_nothing_to_run_runs_nothing() -> None:
    """An empty batch has no outcomes and does not reach the device."""
    backend = ScriptedBackend()
    assert execute(backend, Batch(())) == []
    assert backend.batches == []


def raises_on_bad(batch: Batch) -> NDArray[np.float32]:
    """The model of case C18 (a)."""
    if any("BAD" in text_of(row) for row in batch.rows):
        raise ValueError("cannot embed this")
    return right_outputs(batch)


def test_c18_one_bad_row_fails_alone_and_the_next_batches_are_done() -> None:
    """(a) 31 good rows are done, the bad one has the original type and message, the next 100 are done."""
    texts = [f"good {number}" for number in range(32)]
    texts[13] = "this is BAD"
    outcomes, backend = run_texts(raises_on_bad, texts)
    check_outputs(outcomes, failed={13: "ValueError"})
    assert [outcome.message for outcome in outcomes if isinstance(outcome, RowFailure)] == ["cannot embed this"]
    assert len(backend.batches) <= 2 * 5 + 2
    alone = [batch for batch in backend.batches if [row.index for row in batch.rows] == [13]]
    assert len(alone) == 2
    later, _ = run_texts(raises_on_bad, [f"later {number}" for number in range(100)])
    check_outputs(later, failed={})


def test_c18_a_broken_device_ends_the_run_at_once() -> None:
    """(b) DeviceBroken comes out as it is, after one run, so that nothing is stored or acknowledged."""
    broken = DeviceBroken("CUDA error: device-side assert triggered")

    def behaviour(_: Batch) -> NoReturn:
        raise broken

    backend = ScriptedBackend(behaviour)
    with pytest.raises(DeviceBroken) as caught:
        execute(backend, Batch((text_row(0, "a"), text_row(1, "b"))))
    assert caught.value is broken
    assert len(backend.batches) == 1


def too_small(cells: int) -> Behaviour:
    """A device that holds so many cells of a padded matrix."""

    def behaviour(batch: Batch) -> NDArray[np.float32]:
        if batch.padded_tokens > cells:
            raise DeviceOutOfMemory("does not fit")
        return right_outputs(batch)

    return behaviour


def test_c18_a_batch_that_does_not_fit_is_split_until_it_does() -> None:
    """(c) Rows that fit alone are done; one that does not fails with an out-of-memory reason, after one try alone."""
    texts = ["x" * 10] * 7 + ["y" * 90] + ["z" * 12] * 8
    outcomes, backend = run_texts(too_small(50), texts)
    check_outputs(outcomes, failed={7: "out-of-memory"})
    failure = outcomes[7]
    assert isinstance(failure, RowFailure)
    assert failure.message == "1 rows of up to 90 tokens do not fit the device's memory"
    assert sum(len(batch.rows) == 1 and batch.rows[0].index == 7 for batch in backend.batches) == 1


def test_the_hosts_memory_counts_like_the_devices() -> None:
    """A MemoryError halves the batch as well."""

    def behaviour(batch: Batch) -> NDArray[np.float32]:
        if [row.index for row in batch.rows] not in ([0], [2]):
            raise MemoryError
        return right_outputs(batch)

    outcomes, backend = run_texts(behaviour, ["a", "b", "c"])
    check_outputs(outcomes, failed={1: "out-of-memory"})
    assert len(backend.batches) == 5


@brisk
@given(
    kinds=st.lists(st.sampled_from(["good", "good", "good", "BAD", "NAN"]), min_size=1, max_size=24),
    lengths=st.lists(st.integers(0, 20), min_size=24, max_size=24),
    cells=st.integers(4, 300),
)
def test_each_row_ends_in_its_own_outcome(kinds: list[str], lengths: list[int], cells: int) -> None:
    """Whatever mix of bad rows, non-finite rows and a small device: the innocent are done, in at most 3n - 1 runs."""

    def behaviour(batch: Batch) -> NDArray[np.float32]:
        values = raises_on_bad(batch) if batch.padded_tokens <= cells else too_small(cells)(batch)
        for at, row in enumerate(batch.rows):
            if "NAN" in text_of(row):
                values[at, 1] = np.nan
        return values

    texts = [kind + "x" * length for kind, length in zip(kinds, lengths, strict=False)]
    outcomes, backend = run_texts(behaviour, texts)
    expected = {"BAD": "ValueError", "NAN": "non-finite"}
    failed = {
        at: "out-of-memory" if len(text) > cells else expected[kind]
        for at, (kind, text) in enumerate(zip(kinds, texts, strict=True))
        if len(text) > cells or kind in expected
    }
    check_outputs(outcomes, failed=failed)
    assert len(backend.batches) <= 3 * len(texts) - 1


def test_when_every_row_raises_the_runs_stay_within_the_documented_count() -> None:
    """The worst case is 3n - 1 runs."""

    def behaviour(_: Batch) -> NoReturn:
        raise KeyError("nothing works")

    outcomes, backend = run_texts(behaviour, ["a"] * 32)
    check_outputs(outcomes, failed=dict.fromkeys(range(32), "KeyError"))
    assert len(backend.batches) == 3 * 32 - 1


def test_a_row_that_raises_once_and_then_succeeds_is_done() -> None:
    """A passing fault costs time and nothing else."""
    calls = iter([RuntimeError("hiccup"), None])

    def behaviour(batch: Batch) -> NDArray[np.float32]:
        error = next(calls)
        if error is not None:
            raise error
        return right_outputs(batch)

    outcomes, _ = run_texts(behaviour, ["only one"])
    check_outputs(outcomes, failed={})


def test_rows_that_are_non_finite_only_in_company_are_done() -> None:
    """A NaN that one row brings upon its batch-mates is not held against them."""

    def behaviour(batch: Batch) -> NDArray[np.float32]:
        values = right_outputs(batch)
        if any("NAN" in text_of(row) for row in batch.rows):
            values[:] = np.inf
        return values

    outcomes, backend = run_texts(behaviour, ["a", "NAN", "c"])
    check_outputs(outcomes, failed={1: "non-finite"})
    assert len(backend.batches) == 4


def test_a_backend_that_reuses_its_buffer_cannot_mix_up_results() -> None:
    """Outputs are copied out before the next run can write over them."""
    buffer = np.zeros((64, DIM), dtype=np.float32)

    def behaviour(batch: Batch) -> NDArray[np.float32]:
        values = raises_on_bad(batch)
        buffer[: len(values)] = values
        return buffer[: len(values)]

    outcomes, _ = run_texts(behaviour, ["one", "two", "BAD", "four", "five"])
    check_outputs(outcomes, failed={2: "ValueError"})


@pytest.mark.parametrize(
    ("returned", "described"),
    [
        (np.zeros((2, DIM), np.float32), f"float32 of shape (2, {DIM})"),
        (np.zeros((3, DIM + 1), np.float32), f"float32 of shape (3, {DIM + 1})"),
        (np.zeros(3, np.float32), "float32 of shape (3,)"),
        (np.zeros((3, DIM), np.float64), f"float64 of shape (3, {DIM})"),
        ([[0.0] * DIM] * 3, "a list"),
        (None, "a NoneType"),
    ],
)
def test_outputs_of_another_shape_belong_to_nobody(returned: object, described: str) -> None:
    """It is the backend's bug: no row gets a value, all may be tried again, and nothing is run a second time."""
    outcomes, backend = run_texts(lambda _: returned, ["a", "b", "c"])
    check_outputs(outcomes, failed=dict.fromkeys(range(3), "bad-backend"))
    for outcome in outcomes:
        assert isinstance(outcome, RowFailure)
        assert outcome.transient
        assert outcome.message == f"the backend returned {described}, not float32 of shape (3, {DIM})"
    assert len(backend.batches) == 1


class Unspeakable(Exception):
    """An exception that cannot say its text."""

    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("two\nlines,\ta tab\x00\x1b[31m and \x07a bell"), "two lines, a tab[31m and a bell"),
        (ValueError("y" * 10_000), "y" * 500),
        (ValueError("half of a pair: \ud83d."), "half of a pair: ."),
        (ValueError("naïve 東京 🎉"), "naïve 東京 🎉"),
        (ValueError(), ""),
        (Unspeakable(), ""),
    ],
)
def test_a_failures_message_is_one_short_printable_line(error: Exception, message: str) -> None:
    """Whatever an exception says can be stored, shown and logged."""

    def behaviour(_: Batch) -> NoReturn:
        raise error

    outcomes, _ = run_texts(behaviour, ["a"])
    failure = outcomes[0]
    assert isinstance(failure, RowFailure)
    assert (failure.code, failure.message, failure.transient) == (type(error).__name__, message, False)


class Memory:
    """Stands for what a run has allocated on the device."""


def test_the_memory_of_a_run_that_failed_is_free_before_the_next(no_collector: None) -> None:
    """Also where the exception is raised from another, which makes cycles that nobody collects in time."""
    del no_collector
    allocated: list[weakref.ref[Memory]] = []
    in_use: list[int] = []

    def behaviour(batch: Batch) -> NDArray[np.float32]:
        in_use.append(sum(memory() is not None for memory in allocated))
        memory = Memory()
        allocated.append(weakref.ref(memory))
        try:
            outputs: NDArray[np.float32] = too_small(1)(batch)
        except DeviceOutOfMemory as error:
            fault = DeviceOutOfMemory("no room")
            raise fault from error
        return outputs

    run_texts(behaviour, ["a", "b", "c", "d"])
    assert in_use == [0] * 7


def test_an_interrupt_is_not_a_rows_fault() -> None:
    """What is no Exception goes through: it is meant for the process."""

    def behaviour(_: Batch) -> NoReturn:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_texts(behaviour, ["a", "b"])
