"""The simulated fleet against a real one: the same jobs, at the same times, with what the real workers learned."""

from __future__ import annotations

import json
import time
from pathlib import Path
from random import Random
from threading import Event
from typing import Any, Final

import numpy as np
import pytest
from click.testing import CliRunner

from cordwood.cli import cli as cordwood_cli
from cordwood.inspection import look_at_workers, recorded_arrivals
from cordwood_worker.cli import cli as worker_cli
from tests.fleet import PATIENT, Fleet
from tests.waiting import wait_until

WITHIN: Final = 0.15
WORKERS: Final = 2
JOBS: Final = 2_500
RATE: Final = 420.0
"""About six tenths of what two workers can do that take 20 ms a batch of up to 32 rows, and 2 ms a row."""


@pytest.fixture
def learned(fleet: Fleet) -> Fleet:
    """Workers whose batches take as long as is said, and who know it."""
    fleet.configure({**PATIENT, "max_batch_rows": 32}, options={"delay_s": 0.02, "per_row_s": 0.002})
    fleet.start(WORKERS)
    random = Random(1)
    while not all(view.info["tokens_per_s"] for view in look_at_workers(fleet.redis, fleet.keys)):
        jobs = fleet.client.submit_many(["warm up " * random.randint(1, 9) for _ in range(random.randint(1, 80))])
        fleet.client.wait_many(jobs, timeout_s=30)
    forget(fleet)
    return fleet


def submit_at_random(fleet: Fleet, jobs: int, rate: float) -> list[str]:
    """Submit jobs one by one, with exponential gaps, and return when all have been."""
    random = Random(2)
    ids: list[str] = []
    due_s = time.monotonic()
    for _ in range(jobs):
        due_s += random.expovariate(rate)
        Event().wait(max(0.0, due_s - time.monotonic()))
        ids.append(fleet.client.submit("word " * random.randint(1, 40), lane=random.choice(["high", "normal", "low"])))
    return ids


def measured(fleet: Fleet, ids: list[str], before: dict[str, int]) -> dict[str, float]:
    """What really happened to these jobs."""
    records = [fleet.client.get(job_id) for job_id in ids]
    done_ms = [record.finished_ms - record.submitted_ms for record in records]
    took_s = (max(record.finished_ms for record in records) - min(record.submitted_ms for record in records)) / 1000
    counted = {name: fleet.stat(name) - value for name, value in before.items()}
    return {
        "utilisation": counted["compute_us"] / 1e6 / took_s / WORKERS,
        "rows_per_batch": counted["rows"] / counted["batches"],
        "done_p50_ms": float(np.percentile(done_ms, 50)),
        "done_p99_ms": float(np.percentile(done_ms, 99)),
    }


@pytest.mark.timeout(120)
def test_a_simulated_fleet_does_what_the_real_one_did(learned: Fleet, tmp_path: Path) -> None:
    """Utilisation, rows a batch and times to the result within 15 %, in one of three tries: neighbours spoil some."""
    tries = (compare(learned, tmp_path) for _ in range(3))
    seen: list[dict[str, float]] = []
    for ratios in tries:
        seen.append(ratios)
        if all(abs(ratio - 1) <= WITHIN for ratio in ratios.values()):
            return
    pytest.fail(f"simulated over real: {seen}")


def compare(fleet: Fleet, folder: Path) -> dict[str, float]:
    """Let the real fleet and the simulated one do the same jobs; return simulated over real, by what was measured.

    What the simulator gets is what the commands of the README record.
    """
    before = {name: fleet.stat(name) for name in ("compute_us", "rows", "batches")}
    ids = submit_at_random(fleet, JOBS, RATE)
    fleet.client.wait_many(ids, timeout_s=30)
    wait_until(lambda: fleet.stat("rows") - before["rows"] == JOBS, description="all rows are counted", timeout_s=30.0)
    real = measured(fleet, ids, before)
    recording = folder / "arrivals.csv"
    printed = CliRunner().invoke(cordwood_cli, ["--redis-url", fleet.url, "queue", "arrivals", "embed"])
    recording.write_text(printed.stdout, "utf-8")
    config = fleet.folder / "fleet.toml"
    arguments = ["--config", str(config), "--redis-url", fleet.url, "--arrivals", str(recording)]
    done = CliRunner().invoke(worker_cli, ["simulate", *arguments, "--devices", str(WORKERS), "--json"])
    assert done.exit_code == 0, done.output
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["jobs"] == JOBS
    forget(fleet)
    simulated = {**report, **report["lanes"][0]}
    return {name: round(simulated[name] / value, 3) for name, value in real.items()}


def forget(fleet: Fleet) -> None:
    """Delete the records of jobs that are done."""
    fleet.redis.delete(*fleet.redis.scan_iter(fleet.keys.job_pattern, count=1000))


@pytest.mark.leaves_jobs
def test_a_recording_has_what_the_records_say(fleet: Fleet) -> None:
    """Each job once, whatever became of it; what is no record of a job is left out."""
    fleet.client.submit_many(["x" * 40] * 3, lane="high")
    fleet.client.submit("x" * 400, lane="low", delay_s=1000.0)
    fleet.redis.set(fleet.keys.job("a-text"), "x")
    fleet.redis.hset(fleet.keys.job("half"), "st", "queued")
    found = sorted((tokens, lane) for _, tokens, lane in recorded_arrivals(fleet.redis, fleet.keys))
    assert found == [(10, "high")] * 3 + [(100, "low")]
    now_s = time.time()
    assert all(abs(at_s - now_s) < 60 for at_s, _, _ in recorded_arrivals(fleet.redis, fleet.keys))
    fleet.redis.delete(fleet.keys.job("a-text"), fleet.keys.job("half"))
