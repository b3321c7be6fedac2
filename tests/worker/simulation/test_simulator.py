"""The simulated fleet against what theory and the real parts say."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cordwood_worker.cost_model import Coefficients
from cordwood_worker.draft import BatchLimits
from cordwood_worker.simulation.arrivals import Arrivals, make_arrivals
from cordwood_worker.simulation.report import devices_for, load_curve, offered_load, simulate
from cordwood_worker.simulation.simulator import FleetPlan, Simulator

PLAN = FleetPlan(
    devices=1,
    limits=BatchLimits(max_tokens=2048, max_rows=64, max_wait_s=0.002, max_bypass=16),
    lookahead=4,
    coefficients=Coefficients(token_s=2e-5, row_s=1e-5, square_s=0.0, batch_s=0.004),
    packed=False,
)
ALONE = replace(PLAN, limits=replace(PLAN.limits, max_rows=1), coefficients=Coefficients(batch_s=0.01))
"""One job a batch, each of 10 ms: a queue with one server and a constant time of service."""


def poisson(rate: float, jobs: int = 20_000, *, lanes: tuple[float, ...] = (0, 1, 0), seed: int = 1) -> Arrivals:
    """Random traffic of mean length 60."""
    return make_arrivals(jobs=jobs, rate=rate, mean_tokens=60, max_tokens=256, lane_parts=lanes, seed=seed)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(0, 0.5), st.integers(1, 3000), st.integers(0, 2)), min_size=1, max_size=60),
    st.integers(1, 4),
    st.booleans(),
)
def test_every_job_is_computed_once_and_not_before_it_came(
    jobs: list[tuple[float, int, int]], devices: int, packed: bool
) -> None:
    """Whatever comes and however many devices there are."""
    at_s, tokens, lanes = zip(*sorted(jobs), strict=True)
    arrivals = Arrivals(np.array(at_s), np.array(tokens), np.array(lanes, np.uint8))
    plan = replace(PLAN, devices=devices, packed=packed, overhead_s=0.001)
    tally = Simulator(arrivals, plan).run()
    assert (tally.began_s >= arrivals.at_s + 0.001).all()
    assert (tally.ended_s > tally.began_s).all()
    assert tally.tokens == arrivals.tokens.sum()
    assert tally.cells == tally.tokens if packed else tally.cells >= tally.tokens
    took_s = (tally.ended_s - tally.began_s).sum()
    assert took_s == pytest.approx(tally.rows_s), "every batch takes as long as it takes"
    assert tally.busy_s <= devices * (tally.ended_s.max() - arrivals.at_s[0]) + 1e-9


@pytest.mark.parametrize("load", [0.3, 0.7])
def test_single_jobs_wait_as_long_as_in_the_formula_of_pollaczek_and_khinchine(load: float) -> None:
    """The mean wait with a constant time of service s at load r is r·s / 2(1 - r)."""
    arrivals = poisson(load / 0.01, jobs=60_000)
    tally = Simulator(arrivals, ALONE).run()
    expected_s = load * 0.01 / (2 * (1 - load))
    assert (tally.began_s - arrivals.at_s).mean() == pytest.approx(expected_s, rel=0.1)


def test_a_backlog_is_drained_at_full_speed_by_all_devices() -> None:
    """All come at once: the time is the work divided by the devices, and they are busy to the end."""
    arrivals = poisson(1e9, jobs=20_000)
    one, four = simulate(arrivals, PLAN), simulate(arrivals, replace(PLAN, devices=4))
    assert one.utilisation > 0.999
    assert four.utilisation > 0.98
    assert one.drain_s / four.drain_s == pytest.approx(4.0, rel=0.05)
    assert one.rows_per_batch > 25
    assert one.padding < 0.25


def test_lanes_get_their_parts_when_there_is_too_much() -> None:
    """At twice the load high jobs pass the others, and low ones are not forgotten."""
    arrivals = poisson(2000.0, lanes=(3, 4, 3))
    report = simulate(arrivals, PLAN)
    waits = {each.lane: each.wait_p50_ms for each in report.lanes}
    assert report.load > 1.5
    assert waits["high"] < 0.7 * waits["normal"] < 0.7 * waits["low"]
    assert sum(each.jobs for each in report.lanes) == 2 * len(arrivals)


def test_an_objective_is_met_by_as_many_devices_as_are_said_and_by_no_fewer() -> None:
    """Found by doubling and halving; None where no fleet does it."""
    arrivals = poisson(2000.0)
    needed = devices_for(arrivals, PLAN, wait_p99_ms=20.0)
    assert needed is not None
    assert needed > 1
    assert simulate(arrivals, replace(PLAN, devices=needed)).wait_p99_ms() <= 20.0
    assert simulate(arrivals, replace(PLAN, devices=needed - 1)).wait_p99_ms() > 20.0
    slow = replace(PLAN, overhead_s=1.0)
    assert devices_for(poisson(2000.0, jobs=50), slow, wait_p99_ms=20.0) is None


def test_waits_grow_with_the_load() -> None:
    """And each report is of the load that was asked for."""
    reports = load_curve(poisson(100.0), PLAN, [0.2, 0.6, 1.0])
    assert [report.load for report in reports] == pytest.approx([0.2, 0.6, 1.0])
    waits = [report.wait_p99_ms() for report in reports]
    assert waits == sorted(waits)
    assert offered_load(poisson(1e12, jobs=2), PLAN) > 1e3


def test_at_light_load_a_job_waits_for_no_more_than_the_batch_in_hand() -> None:
    """At 30 % load 99 of 100 jobs wait no longer than a batch takes, or 2 ms: no idle device waits for a timer."""
    patient = replace(PLAN, limits=replace(PLAN.limits, max_wait_s=0.05))
    for plan in (PLAN, patient, replace(PLAN, packed=True), replace(PLAN, devices=3)):
        arrivals = poisson(100.0)
        arrivals = arrivals.faster(0.3 / offered_load(arrivals, plan))
        tally = Simulator(arrivals, plan).run()
        batch_s = float(np.percentile(tally.ended_s - tally.began_s, 99))
        assert np.percentile(tally.began_s - arrivals.at_s, 99) <= max(batch_s, 0.002)


@pytest.mark.parametrize("load", [1.05, 1.5])
def test_at_saturation_the_device_does_what_greedy_full_batches_would(load: float) -> None:
    """Within 2 % of the time of a device that has everything and always fills its batches, in any order."""
    plan = replace(PLAN, packed=True)
    arrivals = poisson(100.0, jobs=30_000)
    arrivals = arrivals.faster(load / offered_load(arrivals, plan))
    took_s = Simulator(arrivals, plan).run().ended_s.max() - arrivals.at_s[0]
    assert took_s <= 1.02 * greedy_s(arrivals, plan)


def greedy_s(arrivals: Arrivals, plan: FleetPlan) -> float:
    """How long packed batches take that are filled with the longest row that fits until nothing does."""
    left = Counter[int](arrivals.tokens.tolist())
    cost, budget, seconds = plan.coefficients, plan.limits.max_tokens, 0.0
    while left:
        rows, room = 0, budget
        while rows < plan.limits.max_rows and (fits := [length for length in left if length <= room]):
            longest = max(fits)
            left[longest] -= 1
            left += Counter()
            rows, room = rows + 1, room - longest
        seconds += cost.batch_s + cost.row_s * rows + cost.token_s * (budget - room)
    return seconds


def test_noise_makes_batches_take_longer_and_shorter() -> None:
    """The same seed gives the same run."""
    arrivals = poisson(300.0, jobs=2000)
    noisy = replace(PLAN, noise=0.3)
    assert simulate(arrivals, noisy) == simulate(arrivals, noisy)
    assert simulate(arrivals, noisy) != simulate(arrivals, PLAN)
    assert simulate(arrivals, replace(noisy, seed=1)) != simulate(arrivals, noisy)
