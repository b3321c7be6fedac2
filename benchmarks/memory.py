"""`memory`: whether a process that runs batches of random shapes for long keeps its size."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Final

from benchmarks.long_run import SETTLED_AFTER
from benchmarks.measure import Report
from benchmarks.own_engine import MODEL
from benchmarks.processes import environment

BATCHES: Final = 5_000
QUICK_BATCHES: Final = 500
SECONDS: Final = 200.0
QUICK_SECONDS: Final = 25.0
"""For the batches alone: loading the model comes before."""


def run(*, quick: bool) -> Report:
    """Measure in a process of its own, in which nothing else has run."""
    batches, seconds = (QUICK_BATCHES, QUICK_SECONDS) if quick else (BATCHES, SECONDS)
    command = [sys.executable, "-m", "benchmarks.long_run", str(batches), str(seconds)]
    output = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, text=True, check=True).stdout
    measured: dict[str, Any] = json.loads(output.splitlines()[-1])
    settings = {"model": MODEL, "batches": batches, "settled_after": SETTLED_AFTER, "quick": quick}
    settings |= {name: measured[name] for name in ("engine", "most_tokens")}
    report = Report(benchmark="memory", settings=settings, figures=figures(measured))
    if "pool_hit_rate" not in report.figures:
        report.notes.append("without pool_hit_rate: the backend has no pool")
    return report


def figures(measured: Mapping[str, Any]) -> dict[str, float]:
    """Return the figures of a run: growth counts from batch 50, and so do the leases that the pool served."""
    found = {"rss_growth_mb": measured["end_mb"] - measured["settled_mb"], "peak_rss_mb": measured["peak_mb"]}
    if "pool_hits" in measured:
        leases = measured["pool_hits"] + measured["pool_misses"]
        found["pool_hit_rate"] = measured["pool_hits"] / leases if leases else 1.0
    return found
