"""A minute of too much work on the high lane: nobody starves, of any lane, length or queue."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Final

import pytest

from cordwood.result import Result
from tests.fleet import PATIENT, Fleet
from tests.recording import MODEL, read_notes

OVERLOAD_S: Final = 60.0
ROWS: Final = 16
BATCH_S: Final = 0.05
OVERLOAD: Final = 1.5
LONG: Final = 256


class Flood:
    """Submits high-lane jobs at a steady rate from a thread of its own, until it is told to stop."""

    def __init__(self, fleet: Fleet, rate: float) -> None:
        self.ids: list[str] = []
        self._fleet = fleet
        self._rate = rate
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """Submit nothing more."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        began_s = time.monotonic()
        while not self._over.wait(0.05):
            due = int((time.monotonic() - began_s) * self._rate) - len(self.ids)
            texts = [f"high {len(self.ids) + number:>8}" for number in range(due)]
            self.ids += self._fleet.client.submit_many(texts, lane="high")


@pytest.mark.leaves_jobs
@pytest.mark.timeout(200)
def test_a_minute_at_one_and_a_half_times_capacity_starves_nobody(fleet: Fleet, tmp_path: Path) -> None:
    """500 low jobs, long ones among them, and 100 of a second queue are done meanwhile; high has 70 % of its queue."""
    notes = tmp_path / "notes"
    notes.touch()
    settings = {**PATIENT, "max_batch_rows": ROWS, "max_wait_ms": 0}
    options = {"notes": str(notes), "delay_s": BATCH_S}
    fleet.configure(settings, model=MODEL, options=options, others={"other": {}})
    fleet.start()
    flood = Flood(fleet, OVERLOAD * ROWS / BATCH_S)
    low = fleet.client.submit_many([f"low {n}" if n % 10 else "low " * (LONG // 4) for n in range(500)], lane="low")
    other = fleet.client.submit_many([f"other {n}" for n in range(100)], queue="other")
    began_s = time.monotonic()
    try:
        done = fleet.client.wait_many(low, timeout_s=OVERLOAD_S)
        also = fleet.client.wait_many(other, queue="other", timeout_s=OVERLOAD_S)
        ended_s = time.monotonic()
        threading.Event().wait(max(0.0, OVERLOAD_S - (ended_s - began_s)))
    finally:
        flood.stop()
    assert all(isinstance(outcome, Result) for outcome in [*done, *also])
    assert any(
        outcome.outputs.truncated or outcome.outputs.tokens[0] >= LONG
        for outcome in done
        if isinstance(outcome, Result)
    )
    high = set(flood.ids)
    batches = [batch for batch in read_notes(notes) if began_s <= batch.began_s <= ended_s]
    own = [job_id in high for batch in batches for job_id in batch.job_ids if job_id not in set(other)]
    assert sum(own) / len(own) >= 0.70
    assert fleet.stat("done") < len(flood.ids) + len(low), "there was too little work: nothing was shown"
