"""The hopper: waiting for a batch, and closing."""

from __future__ import annotations

import threading
import time
from math import inf

import pytest

from cordwood_worker.batch import Batch, Row, Tokens
from cordwood_worker.collect import Collector
from cordwood_worker.cost_model import CostModel, Work, packed_work
from cordwood_worker.draft import BatchLimits
from cordwood_worker.hopper import Hopper


def row(job_id: str, arrived_s: float = 0.0, deadline_s: float = inf) -> Row:
    """A row of four tokens."""
    return Row(job_id, 0, Tokens([1, 2, 3, 4]), arrived_s, deadline_s=deadline_s)


def costing(*, batch_s: float, token_s: float = 0.0) -> CostModel:
    """A model that has learned these costs."""
    costs = CostModel(packed_work)
    for tokens in range(4, 404, 4):
        costs.note_work(Work(tokens, tokens // 4, 4 * tokens), batch_s + token_s * tokens)
    return costs


def busy_hopper(costs: CostModel | None, clock: list[float], *, deadline_s: float = inf) -> Hopper:
    """One that got fifty jobs at a thousand a second, the last of them now, and may wait a fifth of a second."""
    hopper = Hopper(Collector(BatchLimits(1000, 100, 0.2)), lambda: clock[0], costs)
    for number in range(50):
        clock[0] = number / 1000
        hopper.put([row(f"{number}", clock[0], deadline_s)])
    return hopper


def test_a_full_batch_leaves_at_once() -> None:
    """Without waiting for the timer."""
    hopper = Hopper(Collector(BatchLimits(100, 2, 1000.0)), lambda: 0.0)
    hopper.put([row("a"), row("b")])
    batch = hopper.take()
    assert batch is not None
    assert [item.job_id for item in batch.rows] == ["a", "b"]


def test_a_thread_that_waits_is_woken_by_the_row_that_fills_the_batch() -> None:
    """The device waits for rows, not for a poll."""
    hopper = Hopper(Collector(BatchLimits(100, 1, 1000.0)), time.monotonic)
    taken: list[Batch | None] = []

    def take() -> None:
        while not taken or taken[-1] is None:
            taken.append(hopper.take())

    taker = threading.Thread(target=take)
    taker.start()
    hopper.put([row("a", time.monotonic())])
    taker.join(10.0)
    assert taken[-1] is not None


def test_a_lonely_row_leaves_when_its_time_is_over() -> None:
    """Within one call, if the time is over before the call's own bound."""
    hopper = Hopper(Collector(BatchLimits(100, 10, 0.01)), time.monotonic)
    hopper.put([row("a", time.monotonic())])
    assert hopper.take() is not None


def test_an_idle_device_gets_a_lonely_row_at_once_and_a_busy_one_does_not() -> None:
    """Waiting would leave the device idle, and nobody is to be expected."""
    hopper = Hopper(Collector(BatchLimits(100, 10, 0.2)), lambda: 0.0)
    hopper.put([row("a")])
    assert hopper.take(idle=lambda: False) is None
    batch = hopper.take()
    assert batch is not None
    assert [item.job_id for item in batch.rows] == ["a"]


def test_rows_wait_for_others_where_jobs_come_often() -> None:
    """A thousand a second, and a wait of a fifth of a second: the fiftieth is not the last."""
    clock = [0.0]
    hopper = busy_hopper(None, clock)
    assert hopper.take() is None
    clock[0] = 0.2
    batch = hopper.take()
    assert batch is not None
    assert len(batch.rows) == 50


def test_nobody_waits_where_a_batch_costs_no_more_than_its_tokens() -> None:
    """A thousand a second save less than a second by sharing batches that begin in half a millisecond."""
    clock = [0.0]
    assert busy_hopper(costing(batch_s=0.0005, token_s=1e-4), clock).take() is not None
    assert busy_hopper(costing(batch_s=0.06, token_s=1e-4), clock).take() is None


def test_nobody_waits_longer_than_a_job_saves_by_it() -> None:
    """Sixty milliseconds, though the timer would run for two hundred: so at light load nobody waits for a timer."""
    clock = [0.0]
    hopper = busy_hopper(costing(batch_s=0.06), clock)
    clock[0] = 0.055
    assert hopper.take() is None
    assert hopper.wait_s(lambda: True) == pytest.approx(0.005, rel=0.1)
    clock[0] = 0.062
    assert hopper.take() is not None


def test_a_deadline_ends_the_wait_early_enough_to_be_kept() -> None:
    """The two hundred tokens take 120 ms, so a batch that must be done at 250 ms leaves 180 ms before."""
    clock = [0.0]
    hopper = busy_hopper(costing(batch_s=0.1, token_s=1e-4), clock, deadline_s=0.25)
    clock[0] = 0.065
    assert hopper.take() is None
    clock[0] = 0.075
    batch = hopper.take()
    assert batch is not None
    assert len(batch.rows) == 50


def test_a_thread_that_waits_takes_the_batch_when_its_deadline_wants_it() -> None:
    """It sleeps no longer than that, though the timer would run for a minute."""
    began_s = time.monotonic()
    hopper = Hopper(Collector(BatchLimits(10**6, 10**4, 60.0)), time.monotonic, costing(batch_s=0.4))
    for number in range(200):
        hopper.put([row(f"{number}", time.monotonic(), began_s + 0.8)])
    batch = hopper.take()
    assert batch is not None
    assert 0.15 < time.monotonic() - began_s < 0.35


def test_nothing_leaves_a_closed_hopper() -> None:
    """What is left is handed back with its jobs."""
    hopper = Hopper(Collector(BatchLimits(100, 1, 0.0)), lambda: 0.0)
    hopper.put([row("a")])
    hopper.close()
    assert hopper.take() is None


def test_rows_of_jobs_that_are_over_are_dropped() -> None:
    """They would be computed for nothing."""
    hopper = Hopper(Collector(BatchLimits(100, 2, 1000.0)), lambda: 0.0)
    hopper.put([row("a"), row("b")])
    hopper.discard({"a"})
    hopper.put([row("c")])
    batch = hopper.take()
    assert batch is not None
    assert [item.job_id for item in batch.rows] == ["b", "c"]


def test_a_lower_limit_makes_what_waits_a_batch_at_once() -> None:
    """The thread that waits for more is woken."""
    hopper = Hopper(Collector(BatchLimits(100, 10, 1000.0)), time.monotonic)
    hopper.put([row("a", time.monotonic()), row("b", time.monotonic())])
    taken: list[Batch | None] = []

    def take() -> None:
        while not taken or taken[-1] is None:
            taken.append(hopper.take())

    taker = threading.Thread(target=take)
    taker.start()
    hopper.limit_tokens(4)
    taker.join(10.0)
    assert taken[-1] is not None
    assert len(taken[-1].rows) == 1
    assert hopper.max_tokens == 4
