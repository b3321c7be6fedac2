"""What a simulated fleet shows: how busy it is, how long jobs wait, and how many devices meet an objective."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from cordwood.keys import LANES
from cordwood_worker.simulation.simulator import Simulator

if TYPE_CHECKING:
    from cordwood_worker.simulation.arrivals import Arrivals
    from cordwood_worker.simulation.simulator import FleetPlan

ALL: Final = "all"
MOST_DEVICES: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneReport:
    """How the jobs of a lane fared, in ms from their arrival: until their batch began, and until it was done."""

    lane: str
    jobs: int
    wait_p50_ms: float
    wait_p99_ms: float
    done_p50_ms: float
    done_p99_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetReport:
    """One run. Times in seconds.

    `load` is the work that comes in a second as a part of what the devices can do in it in full batches; `utilisation`
    the part of the time from the first arrival to the last result in which the devices computed; `drain_s` how long
    the fleet still worked after the last arrival; `padding` the part of the computed tokens that was padding.
    """

    devices: int
    jobs: int
    span_s: float
    load: float
    utilisation: float
    drain_s: float
    jobs_per_s: float
    tokens_per_s: float
    batches: int
    rows_per_batch: float
    padding: float
    lanes: tuple[LaneReport, ...]

    def wait_p99_ms(self, lane: str = ALL) -> float:
        """The wait of 99 in 100 jobs of a lane, or of all; 0.0 for a lane without jobs."""
        return next((each.wait_p99_ms for each in self.lanes if each.lane == lane), 0.0)


def simulate(arrivals: Arrivals, plan: FleetPlan) -> FleetReport:
    """Run the arrivals through the fleet and report; a tenth of a minute for 200,000 jobs."""
    tally = Simulator(arrivals, plan).run()
    took_s = float(tally.ended_s.max() - arrivals.at_s[0])
    waits, done = tally.began_s - arrivals.at_s, tally.ended_s - arrivals.at_s
    chosen = {ALL: np.ones(len(arrivals), bool)}
    chosen.update({lane: arrivals.lanes == code for code, lane in enumerate(LANES)})
    return FleetReport(
        devices=plan.devices,
        jobs=len(arrivals),
        span_s=arrivals.span_s,
        load=offered_load(arrivals, plan),
        utilisation=tally.busy_s / plan.devices / took_s,
        drain_s=float(tally.ended_s.max() - arrivals.at_s[-1]),
        jobs_per_s=len(arrivals) / took_s,
        tokens_per_s=tally.tokens / took_s,
        batches=tally.batches,
        rows_per_batch=len(arrivals) / tally.batches,
        padding=1 - tally.tokens / tally.cells,
        lanes=tuple(
            LaneReport(
                lane=lane,
                jobs=int(mask.sum()),
                wait_p50_ms=1000 * float(np.percentile(waits[mask], 50)),
                wait_p99_ms=1000 * float(np.percentile(waits[mask], 99)),
                done_p50_ms=1000 * float(np.percentile(done[mask], 50)),
                done_p99_ms=1000 * float(np.percentile(done[mask], 99)),
            )
            for lane, mask in chosen.items()
            if mask.any()
        ),
    )


def full_speed(mean_tokens: float, plan: FleetPlan) -> float:
    """The tokens that one device computes in a second in full batches of rows of this length."""
    limits, cost = plan.limits, plan.coefficients
    rows = max(1.0, min(limits.max_rows, limits.max_tokens / mean_tokens))
    tokens = rows * mean_tokens
    seconds = cost.token_s * tokens + cost.row_s * rows + cost.square_s * tokens * mean_tokens + cost.batch_s
    return tokens / seconds


def offered_load(arrivals: Arrivals, plan: FleetPlan) -> float:
    """The tokens that come in a second as a part of what all devices compute in one, in full batches; inf at once."""
    tokens = float(arrivals.tokens.sum())
    capacity = plan.devices * full_speed(tokens / len(arrivals), plan)
    return tokens / arrivals.span_s / capacity if arrivals.span_s > 0 else float("inf")


def devices_for(arrivals: Arrivals, plan: FleetPlan, *, wait_p99_ms: float, lane: str = ALL) -> int | None:
    """Return the smallest fleet in which 99 of 100 jobs of a lane wait no longer; None if `MOST_DEVICES` do not do.

    Doubles the fleet until it meets the objective, then halves the difference.
    """

    def meets(devices: int) -> bool:
        return simulate(arrivals, replace(plan, devices=devices)).wait_p99_ms(lane) <= wait_p99_ms

    enough = 1
    while not meets(enough):
        if enough >= MOST_DEVICES:
            return None
        enough *= 2
    too_few = enough // 2
    while enough - too_few > 1:
        middle = (enough + too_few) // 2
        enough, too_few = (middle, too_few) if meets(middle) else (enough, middle)
    return enough


def load_curve(arrivals: Arrivals, plan: FleetPlan, loads: list[float]) -> list[FleetReport]:
    """Run the same jobs at the rates that make these loads."""
    now = offered_load(arrivals, plan)
    return [simulate(arrivals.faster(load / now), plan) for load in loads]
