"""What real workers put into a batch and when it leaves: case C05."""

from __future__ import annotations

import time
from pathlib import Path
from threading import Event
from typing import Final

import pytest

from tests.fleet import PATIENT, Fleet
from tests.outcomes import check_all_done, submit
from tests.recording import MODEL, BatchNote, read_notes

MAX_WAIT_S: Final = 0.2
BATCH_S: Final = 0.005
"""What a batch takes to compute."""


@pytest.fixture
def notes(fleet: Fleet, tmp_path: Path) -> Path:
    """The file in which a worker that was just started notes its batches of up to 64 rows."""
    file = tmp_path / "notes"
    file.touch()
    settings = {**PATIENT, "max_batch_rows": 64, "max_wait_ms": 1000 * MAX_WAIT_S}
    fleet.configure(settings, model=MODEL, options={"notes": str(file), "delay_s": BATCH_S})
    fleet.start()
    return file


def batches_of(notes: Path, jobs: dict[str, str]) -> list[BatchNote]:
    """Return the batches with these jobs, after checking that each job was in exactly one."""
    batches = [batch for batch in read_notes(notes) if not jobs.keys().isdisjoint(batch.job_ids)]
    assert sorted(job_id for batch in batches for job_id in batch.job_ids) == sorted(jobs)
    return batches


@pytest.mark.timeout(180)
def test_c05_20000_tiny_texts_in_one_call_make_full_batches(fleet: Fleet, notes: Path) -> None:
    """Part a: 20,000 outcomes under as many IDs, no batch above 64 rows and few below, within 120 s."""
    texts = [f"{number % 999 + 1:x}" for number in range(20_000)]
    began_s = time.monotonic()
    jobs = submit(fleet, texts)
    assert len(jobs) == 20_000
    check_all_done(fleet, jobs, timeout_s=120)
    assert time.monotonic() - began_s < 120
    batches = batches_of(notes, jobs)
    assert max(batch.rows for batch in batches) <= 64
    assert 20_000 / len(batches) >= 58
    assert fleet.stat("rows") == 20_000
    assert fleet.stat("batches") == len(batches)


def test_c05_a_lonely_text_after_a_silence_leaves_when_the_wait_is_over(fleet: Fleet, notes: Path) -> None:
    """Part b: after 5 s without work one text is done within the wait, one inference and 500 ms."""
    check_all_done(fleet, submit(fleet, ["before the silence"]))
    Event().wait(5)
    began_s = time.monotonic()
    jobs = submit(fleet, ["a lonely text"])
    check_all_done(fleet, jobs)
    assert time.monotonic() - began_s < MAX_WAIT_S + BATCH_S + 0.5
    assert [batch.rows for batch in batches_of(notes, jobs)] == [1]


def test_c05_65_texts_make_a_full_batch_and_one_alone(fleet: Fleet, notes: Path) -> None:
    """Part c: 64 rows leave at once, the last one when its own wait is over."""
    began_s = time.monotonic()
    jobs = submit(fleet, [f"{number}" for number in range(65)])
    check_all_done(fleet, jobs)
    assert time.monotonic() - began_s < MAX_WAIT_S + 2 * BATCH_S + 0.5
    assert [batch.rows for batch in batches_of(notes, jobs)] == [64, 1]


def test_c05_a_text_every_150_ms_does_not_restart_the_timer(fleet: Fleet, notes: Path) -> None:
    """Part d: over 5 s the oldest job of each batch waits at most 100 ms longer than the limit, new ones or not."""
    jobs: dict[str, str] = {}
    for number in range(33):
        jobs |= submit(fleet, [f"text {number}"])
        Event().wait(0.15)
    check_all_done(fleet, jobs)
    batches = batches_of(notes, jobs)
    assert max(batch.waited_s for batch in batches) < MAX_WAIT_S + 0.1
    assert max(batch.rows for batch in batches) > 1
