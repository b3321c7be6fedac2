"""What deciding costs: forming batches from a deep buffer, beside one that sorts it anew, and simulating a fleet."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Final

from benchmarks.corpus import draw_lengths
from benchmarks.measure import Candidate, Plan, Report, rates, ratio, time_in_turn
from cordwood_worker.batch import Batch, Row, Tokens
from cordwood_worker.collect import Collector
from cordwood_worker.cost_model import Coefficients
from cordwood_worker.draft import BatchLimits, padded_cost
from cordwood_worker.simulation.arrivals import make_arrivals
from cordwood_worker.simulation.report import full_speed
from cordwood_worker.simulation.simulator import FleetPlan, Simulator

LIMITS: Final = BatchLimits(max_tokens=2048, max_rows=256, max_wait_s=0.0, max_bypass=64)
BUFFERED: Final = 10_000
OURS: Final = "collect"
SORTING: Final = "sort the buffer for each batch"
SIMULATED_LOAD: Final = 0.8
MEAN_TOKENS: Final = 60
PLAN: Final = FleetPlan(
    devices=2,
    limits=BatchLimits(max_tokens=4096, max_rows=256, max_wait_s=0.002, max_bypass=16),
    lookahead=4,
    coefficients=Coefficients(token_s=1e-5, row_s=1e-5, square_s=0.0, batch_s=0.002),
    packed=True,
)


class SortingFormer:
    """The plain way: sort all that waits by length, and cut a batch around the oldest row."""

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self._rows: list[Row] = []

    def add(self, rows: Sequence[Row]) -> None:
        """Buffer rows, oldest first."""
        self._rows += rows

    def take(self) -> Batch:
        """Remove and return the oldest row and its neighbours in length, as many as fit."""
        ordered = sorted(self._rows, key=lambda row: row.length)
        oldest = min(self._rows, key=lambda row: row.arrived_s)
        first = last = ordered.index(oldest)
        while last + 1 < len(ordered) and self._fits(ordered[first : last + 2]):
            last += 1
        while first > 0 and self._fits(ordered[first - 1 : last + 1]):
            first -= 1
        batch = ordered[first : last + 1]
        taken = {row.index for row in batch}
        self._rows = [row for row in self._rows if row.index not in taken]
        return Batch(tuple(batch))

    def _fits(self, rows: Sequence[Row]) -> bool:
        cost = padded_cost(len(rows), rows[-1].length, 0)
        return len(rows) <= self._limits.max_rows and cost <= self._limits.max_tokens


def run(*, quick: bool) -> Report:
    """Form batches of 50,000 rows with 10,000 waiting throughout, then simulate a million jobs; quick, a tenth."""
    plan = Plan.usual(quick=quick)
    flow = 4_000 if quick else 40_000
    rows = make_rows(BUFFERED + flow)
    slow = max(1_000, flow // 10)
    candidates = {
        OURS: Candidate(seconds=lambda: collect_s(rows, flow), texts=flow, tokens=flow),
        SORTING: Candidate(seconds=lambda: sorting_s(rows, slow), texts=slow, tokens=slow),
    }
    per_job = time_in_turn(candidates, plan)
    jobs = 100_000 if quick else 1_000_000
    simulated_s = simulate_s(jobs)
    settings = {"buffered": BUFFERED, "rows": flow, "simulated_jobs": jobs, "simulated_load": SIMULATED_LOAD}
    report = Report(benchmark="scheduling", settings=settings, results=rates(candidates, per_job))
    report.figures = {
        "collect_us": sorted(per_job[OURS])[len(per_job[OURS]) // 2] * 1e6,
        "collect_vs_sorting": ratio(per_job[SORTING], per_job[OURS]),
        "simulate_us": simulated_s / jobs * 1e6,
    }
    return report


def make_rows(count: int) -> list[Row]:
    """Make rows of the corpus's lengths, a microsecond apart."""
    lengths = draw_lengths(count)
    return [Row(f"j{n}", n, Tokens(range(length)), n * 1e-6) for n, length in enumerate(lengths)]


def collect_s(rows: Sequence[Row], flow: int) -> float:
    """Return the seconds of adding and taking `flow` rows while `BUFFERED` others wait."""
    collector = Collector(LIMITS)
    collector.add(rows[:BUFFERED])
    began_s = perf_counter()
    came = gone = 0
    while gone < flow:
        batch = collector.take(1.0)
        if batch is None:
            raise RuntimeError("a full buffer gave no batch")
        gone += len(batch.rows)
        collector.add(rows[BUFFERED + came : BUFFERED + gone])
        came = gone
    return (perf_counter() - began_s) * flow / gone


def sorting_s(rows: Sequence[Row], flow: int) -> float:
    """The same by sorting."""
    former = SortingFormer(LIMITS)
    former.add(rows[:BUFFERED])
    began_s = perf_counter()
    came = gone = 0
    while gone < flow:
        gone += len(former.take().rows)
        former.add(rows[BUFFERED + came : BUFFERED + gone])
        came = gone
    return (perf_counter() - began_s) * flow / gone


def simulate_s(jobs: int) -> float:
    """Return the seconds of simulating so many jobs on two devices at four fifths of their load."""
    rate = SIMULATED_LOAD * PLAN.devices * full_speed(MEAN_TOKENS, PLAN) / MEAN_TOKENS
    arrivals = make_arrivals(
        jobs=jobs, rate=rate, mean_tokens=MEAN_TOKENS, max_tokens=256, lane_parts=(1, 6, 3), seed=1
    )
    began_s = perf_counter()
    Simulator(arrivals, PLAN).run()
    return perf_counter() - began_s
