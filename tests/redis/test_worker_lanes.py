"""Whom real workers serve first: lanes by weight, a high job before a low backlog, and little work shared by many."""

from __future__ import annotations

import signal
import time
from collections import Counter
from pathlib import Path
from random import Random
from threading import Event
from typing import Any, Final

import pytest

from cordwood.inspection import look_at_workers
from cordwood.keys import queue_keys
from cordwood.result import Result
from cordwood_worker.cost_model import KNOWN_AFTER
from cordwood_worker.exit_codes import ExitCode
from cordwood_worker.fetch import WINDOW_PART
from tests.fleet import PATIENT, Fleet
from tests.outcomes import check_all_done
from tests.recording import MODEL, read_notes
from tests.waiting import wait_until

ROWS: Final = 8
"""What a batch has at most; texts are of equal length, so rows are to each other as tokens."""
BATCH_S: Final = 0.02


SENTENCES: Final = ["word " * words for words in (2, 3, 5, 8, 13, 21, 34)]


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """The file in which workers note their batches."""
    file = tmp_path / "notes"
    file.touch()
    return file


def start_worker(fleet: Fleet, notes: Path, rows: int = ROWS, batch_s: float = BATCH_S) -> None:
    """Start a worker whose batches of so many rows at most take so long each."""
    settings = {**PATIENT, "max_batch_rows": rows, "max_wait_ms": 0}
    fleet.configure(settings, model=MODEL, options={"notes": str(notes), "delay_s": batch_s})
    fleet.start()


def submit(fleet: Fleet, lane: str, count: int) -> dict[str, str]:
    """Submit texts of equal length to a lane, and return them by job ID."""
    texts = [f"{lane:>6} {number:>6}" for number in range(count)]
    return dict(zip(fleet.client.submit_many(texts, lane=lane), texts, strict=True))


@pytest.mark.timeout(120)
@pytest.mark.leaves_jobs
def test_a_flood_of_one_tenant_delays_another_by_five_batches_at_most(fleet: Fleet, notes: Path) -> None:
    """100,000 jobs of all lengths before 10: the ten are in the five batches begun next."""
    start_worker(fleet, notes, rows=32)
    random = Random(1)
    flood = fleet.client.submit_many([random.choice(SENTENCES) for _ in range(100_000)], tenant="flood")
    fleet.client.wait(flood[1000], timeout_s=60)
    window, lane, seen = int(fleet.redis.hget(fleet.keys.named("meta"), "window") or 0), fleet.keys.lane("normal"), []
    for number in range(1000, 1400, 20):
        fleet.client.wait(flood[number], timeout_s=60)
        seen.append(fleet.redis.xlen(lane))
    assert window == int(WINDOW_PART * 4 * 32)
    assert max(seen) <= window
    few = fleet.client.submit_many([random.choice(SENTENCES) for _ in range(10)], tenant="few")
    accepted_s = time.monotonic()
    assert all(isinstance(outcome, Result) for outcome in fleet.client.wait_many(few, timeout_s=30))
    begun = [batch.job_ids for batch in read_notes(notes) if batch.began_s > accepted_s]
    assert set(few) <= {job_id for job_ids in begun[:5] for job_id in job_ids}
    assert fleet.stat("done") < 10_000, "the flood was over"
    # Looking at what is left of 100,000 jobs one by one would take longer than the test.
    fleet.workers[0].kill()
    fleet.redis.flushall()


@pytest.mark.leaves_jobs
def test_a_worker_that_may_not_have_what_waits_aside_does_not_spin(fleet: Fleet) -> None:
    """It has room, the window has none, and its batch goes on and on."""
    fleet.configure({**PATIENT, "max_batch_rows": ROWS, "max_wait_ms": 0}, holding=True)
    fleet.hold()
    worker = fleet.start()[0]
    fleet.redis.hset(fleet.keys.named("meta"), "window", int(WINDOW_PART * 4 * ROWS))
    fleet.client.submit_many(["x"] * 200, tenant="flood")
    fleet.batch_of(worker)
    wait_until(lambda: fleet.pending() == fleet.lengths(), description="the worker holds all that was let in")
    before = processed(fleet)
    Event().wait(1.0)
    assert processed(fleet) - before < 2_000
    fleet.let_go()
    fleet.client.wait_many(fleet.client.submit_many(["y"], tenant="other"), timeout_s=30)


def processed(fleet: Fleet) -> int:
    """How many commands the server has processed, those that scripts call too."""
    found: Any = fleet.redis.info("stats")
    return int(found["total_commands_processed"])


def await_beats(fleet: Fleet, count: int) -> None:
    """Wait until each worker has shown itself so many times again, so that it knows of the others."""
    for _ in range(count):
        await_beat_after(fleet, max(beats(fleet)))


def await_beat_after(fleet: Fleet, newest: float) -> None:
    """Wait until each worker has shown itself since that time of the server."""
    wait_until(lambda: min(beats(fleet)) > newest, description="all workers have beaten again")


def beats(fleet: Fleet) -> list[float]:
    """Return the times at which the workers last showed themselves."""
    found: Any = fleet.redis.zrange(fleet.keys.named("workers"), 0, -1, withscores=True)
    return [float(score) for _, score in found]


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_a_flood_of_the_high_lane_leaves_the_low_lane_its_part(fleet: Fleet, notes: Path, late: bool) -> None:
    """It comes before the worker or after it has filled itself: low ends before high, and high has 70 % of the rows."""
    high = submit(fleet, "high", 1_500)
    low = {} if late else submit(fleet, "low", 100)
    start_worker(fleet, notes)
    if late:
        fleet.client.wait(next(iter(high)), timeout_s=30)
        low = submit(fleet, "low", 100)
    check_all_done(fleet, {**high, **low})
    batches = read_notes(notes)
    lanes = [[job_id in high for job_id in batch.job_ids] for batch in batches]
    first = next(number for number, batch in enumerate(lanes) if not all(batch))
    last = max(number for number, batch in enumerate(lanes) if not all(batch))
    assert last < len(lanes) - 20, "high jobs were left when the last low one was done"
    both = [is_high for batch in lanes[first : last + 1] for is_high in batch]
    assert 0.70 <= sum(both) / len(both) <= 0.95


def test_a_high_job_is_in_the_second_batch_at_the_latest_whatever_the_low_lane_holds(fleet: Fleet, notes: Path) -> None:
    """The worker is full of low jobs each time."""
    low = submit(fleet, "low", 500)
    start_worker(fleet, notes, batch_s=0.08)
    fleet.client.wait(next(iter(low)), timeout_s=30)
    high: dict[str, str] = {}
    accepted_s: dict[str, float] = {}
    for _ in range(10):
        one = submit(fleet, "high", 1)
        accepted_s |= dict.fromkeys(one, time.monotonic())
        check_all_done(fleet, one)
        high |= one
    batches = read_notes(notes)
    check_all_done(fleet, low)
    for job_id, since_s in accepted_s.items():
        begun = [batch for batch in batches if batch.began_s > since_s]
        assert job_id in [one for batch in begun[:2] for one in batch.job_ids]


def test_little_work_is_shared_by_all_workers(fleet: Fleet) -> None:
    """40 jobs that one worker could hold: none of four does more than half as much again as its part."""
    fleet.configure({**PATIENT, "max_batch_rows": 4, "max_wait_ms": 0}, options={"per_row_s": 0.03})
    fleet.start(4)
    await_beats(fleet, 2)
    outcomes = fleet.client.wait_many(fleet.client.submit_many([f"text {number}" for number in range(40)]))
    done = Counter(outcome.worker for outcome in outcomes if isinstance(outcome, Result))
    assert done.total() == 40
    assert len(done) == 4
    assert max(done.values()) <= 15


def test_at_light_load_a_job_waits_for_no_more_than_the_batch_in_hand(fleet: Fleet, notes: Path) -> None:
    """At 30 % load, though a batch might wait half a second for more rows."""
    batch_s, load, jobs = 0.04, 0.3, 250
    options = {"notes": str(notes), "delay_s": batch_s}
    fleet.configure({**PATIENT, "max_batch_rows": ROWS, "max_wait_ms": 500}, model=MODEL, options=options)
    fleet.start()
    random, due_s = Random(3), time.monotonic()
    ids: list[str] = []
    for number in range(jobs):
        due_s += random.expovariate(load * ROWS / batch_s)
        Event().wait(max(0.0, due_s - time.monotonic()))
        ids.append(fleet.client.submit(f"{number:>6}"))
    assert all(isinstance(outcome, Result) for outcome in fleet.client.wait_many(ids, timeout_s=30))
    # The first batches are spent on learning what a batch costs.
    waits = sorted(batch.waited_s for batch in read_notes(notes)[2 * KNOWN_AFTER :])
    assert waits[int(0.99 * len(waits))] <= 2 * batch_s


def test_two_queues_share_the_time_of_one_worker_by_weight(fleet: Fleet, notes: Path) -> None:
    """Both are served by one process; of two floods that with three times the weight has three times the batches."""
    settings = {**PATIENT, "max_batch_rows": ROWS, "max_wait_ms": 0}
    options = {"notes": str(notes), "delay_s": BATCH_S}
    fleet.configure(settings, model=MODEL, options=options, others={"other": {"weight": 3}})
    one = fleet.client.submit_many([f"one {number:>6}" for number in range(600)])
    other = fleet.client.submit_many([f"two {number:>6}" for number in range(600)], queue="other")
    fleet.start()
    for ids, queue in ((one, None), (other, "other")):
        outcomes = fleet.client.wait_many(ids, queue=queue, timeout_s=60)
        assert all(isinstance(outcome, Result) for outcome in outcomes)
    whose = [batch.job_ids[0] in set(other) for batch in read_notes(notes)]
    both = whose[: len(whose) - whose[::-1].index(True)]
    assert sum(both) / len(both) == pytest.approx(0.75, abs=0.05)
    names = {view.consumer for queue in ("embed", "other") for view in look_at_workers(fleet.redis, queue_keys(queue))}
    assert len(names) == 1
    fleet.workers[0].send(signal.SIGTERM)
    assert fleet.workers[0].exit_code() == ExitCode.CLEAN
    assert not look_at_workers(fleet.redis, queue_keys("other"))
