"""A device that computes beside the CPU is given the next batch before the last is fetched, and loses nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from queue import Queue
from threading import Condition
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cordwood_worker.backends import DeviceBroken, OverlappingBackend
from cordwood_worker.batch import Batch, RowFailure, RowOutput
from cordwood_worker.cost_model import KNOWN_AFTER, CostModel, Work, packed_work
from cordwood_worker.draft import padded_cost
from cordwood_worker.flow import Computed, Flow, Signals
from cordwood_worker.hoppers import Hoppers
from cordwood_worker.pace import Pace
from cordwood_worker.run import OverlappingRunner
from cordwood_worker.served import Served
from cordwood_worker.stage import Staged, Stager
from cordwood_worker.testing import BAD, FaultBackend, fault_vector
from tests.worker.rows import text_row


class Place:
    """A place on the device of a test."""

    def __init__(self) -> None:
        self.released = 0

    def release(self) -> None:
        """Count it."""
        self.released += 1


class Device(FaultBackend):
    """A device that notes what it is told, and in which order."""

    overlaps = True

    def __init__(self) -> None:
        super().__init__()
        self.events: list[str] = []
        self.places: list[Place] = []
        self.refusal: Exception | None = None

    def stage(self, batch: Batch) -> Place:
        """Make a place."""
        self.events.append(f"stage {batch.rows[0].job_id}")
        if self.refusal is not None:
            raise self.refusal
        self.places.append(Place())
        return self.places[-1]

    def begin(self, batch: Batch, staged: Place) -> Callable[[], NDArray[np.float32]]:
        """Begin; the outputs are computed when they are asked for."""
        staged.release()
        self.events.append(f"begin {batch.rows[0].job_id}")

        def outputs() -> NDArray[np.float32]:
            self.events.append(f"fetch {batch.rows[0].job_id}")
            return self.run(batch)

        return outputs


class Attempts:
    """What the server is told of running batches."""

    def __init__(self) -> None:
        self.marks: list[list[str]] = []

    def mark(self, stage: str, job_ids: Iterable[str]) -> None:
        """Note it."""
        assert stage == "run"
        self.marks.append(list(job_ids))


class Bench:
    """A stager and a runner whose `run_once` the test calls."""

    def __init__(self) -> None:
        self.device = Device()
        self.attempts = Attempts()
        self.signals = Signals()
        self.idle_when_taken: list[bool] = []
        self.waiting: list[Batch] = []
        self.limits = [4096]
        self.staged: Queue[Staged] = Queue()
        self.computed: Queue[Computed] = Queue()
        flow: Any = self
        attempts: Any = self.attempts
        self.hopper = self
        self.outbox = self.computed
        self.cost = padded_cost
        self.costs = CostModel(packed_work)
        self.pace = Pace()
        clock = count()
        typed: Flow = flow
        served = Served.of("embed", 1, self.device, typed, attempts, self.signals)
        hoppers = Hoppers([served], Condition())
        self.stager = Stager(hoppers, self.staged, self.signals)
        self.runner = OverlappingRunner(hoppers, self.staged, self.signals, clock=lambda: float(next(clock)))

    @property
    def max_tokens(self) -> int:
        """The hopper's part."""
        return self.limits[-1]

    def limit_tokens(self, max_tokens: int) -> None:
        """The hopper's part."""
        self.limits.append(max_tokens)

    def wait_s(self, idle: Callable[[], bool]) -> float:
        """The hopper's part."""
        del idle
        return 0.0

    def take_now(self, idle: Callable[[], bool]) -> Batch | None:
        """The hopper's part."""
        self.idle_when_taken.append(idle())
        return self.waiting.pop(0) if self.waiting else None

    def stage(self, *texts: str) -> None:
        """Have one batch of one row staged for each text."""
        self.waiting += [Batch((text_row(number, text),)) for number, text in enumerate(texts)]
        for _ in texts:
            self.stager.run_once()

    def outcomes(self) -> list[RowOutput | RowFailure]:
        """What was passed on, in order."""
        return [row for _ in range(self.computed.qsize()) for row in self.computed.get().rows]


@pytest.fixture
def bench() -> Bench:
    """A fresh one."""
    return Bench()


def test_the_next_batch_is_begun_before_the_last_is_fetched(bench: Bench) -> None:
    """So the device never waits for the copy back; what is on it is marked, both batches together."""
    assert isinstance(bench.device, OverlappingBackend)
    bench.stage("a", "b", "c")
    ids = [staged.batch.rows[0].job_id for staged in bench.staged.queue]
    bench.device.events.clear()
    bench.runner.run_once()
    a, b, c = ids
    expected = [f"begin {a}", f"begin {b}", f"fetch {a}", f"begin {c}", f"fetch {b}", f"fetch {c}"]
    assert bench.device.events == expected
    assert bench.attempts.marks == [[a], [a, b], [b, c]]
    values = [outcome.values for outcome in bench.outcomes() if isinstance(outcome, RowOutput)]
    assert np.array_equal(np.stack(values), np.stack([fault_vector(text) for text in "abc"]))


def test_the_device_is_called_idle_only_while_it_waits_for_a_batch(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stager lays out what there is for an idle device, and lets rows gather for a busy one."""
    seen: list[bool] = []
    get = bench.staged.get

    def watched(block: bool = True, timeout: float | None = None) -> Staged:
        if block:
            seen.append(bench.signals.device_idle.is_set())
        return get(block, timeout)

    monkeypatch.setattr(bench.staged, "get", watched)
    bench.stage("a")
    bench.runner.run_once()
    bench.stage("b")
    assert seen == [True]
    assert bench.idle_when_taken == [False, False]


def test_marks_are_cleared_when_nothing_more_comes(bench: Bench) -> None:
    """Once."""
    bench.stage("a")
    for _ in range(3):
        bench.runner.run_once()
    assert bench.attempts.marks[-1] == []
    assert len(bench.attempts.marks) == 2


def test_nothing_is_begun_after_a_stop_and_what_was_begun_is_fetched(bench: Bench) -> None:
    """The batch behind it stays where it is, to be handed back."""
    bench.stage("a", "b")
    begin = bench.device.begin

    def begin_and_stop(batch: Batch, staged: Place) -> Callable[[], NDArray[np.float32]]:
        bench.signals.stop_working.set()
        return begin(batch, staged)

    bench.device.begin = begin_and_stop  # type: ignore[method-assign]
    bench.runner.run_once()
    assert len(bench.outcomes()) == 1
    assert bench.staged.qsize() == 1


def test_a_batch_that_cannot_be_staged_any_more_gives_its_place_back(bench: Bench) -> None:
    """A stop may come between."""
    bench.signals.stop_working.set()
    bench.stage("a")
    assert bench.staged.empty()
    assert [place.released for place in bench.device.places] == [1]


def test_a_bad_row_fails_alone_also_when_it_was_begun_ahead(bench: Bench) -> None:
    """The first run's error leads to the same halving as any other."""
    bench.waiting.append(Batch((text_row(0, "good"), text_row(1, BAD), text_row(2, "fine"))))
    bench.stager.run_once()
    bench.runner.run_once()
    kinds = [type(outcome) for outcome in bench.outcomes()]
    assert kinds == [RowOutput, RowFailure, RowOutput]


def test_the_times_of_batches_are_learned_except_of_those_that_went_wrong(bench: Bench) -> None:
    """A batch that was halved ran more than once."""
    for _ in range(KNOWN_AFTER):
        for text in ("good", BAD):
            bench.stage(text)
            bench.runner.run_once()
    assert bench.costs.is_known
    assert bench.costs.seconds(Work(4, 1, 16)) == pytest.approx(1.0), "the clock counts a second each time"
    assert bench.costs.error == 0.0
    before = bench.costs.coefficients
    bench.stage(BAD)
    bench.runner.run_once()
    assert bench.costs.coefficients == before


def test_what_staging_raises_is_found_by_running(bench: Bench) -> None:
    """A batch that could not be laid out is run the plain way."""
    bench.device.refusal = ValueError("no room")
    bench.stage("a")
    bench.runner.run_once()
    assert [type(outcome) for outcome in bench.outcomes()] == [RowOutput]


def test_a_broken_device_is_let_through_by_both(bench: Bench) -> None:
    """It ends the process."""
    bench.device.refusal = DeviceBroken("gone")
    with pytest.raises(DeviceBroken):
        bench.stage("a")
    bench.device.refusal = None
    bench.waiting.clear()
    bench.stage("b")

    def break_down(batch: Batch, staged: Place) -> Callable[[], NDArray[np.float32]]:
        raise DeviceBroken(f"gone with {batch} in {staged}")

    bench.device.begin = break_down  # type: ignore[method-assign]
    with pytest.raises(DeviceBroken):
        bench.runner.run_once()
    assert bench.computed.empty()
