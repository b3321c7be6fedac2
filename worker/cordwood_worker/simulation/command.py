"""`cordwood-worker simulate`: what a fleet would do with a traffic."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from cordwood.connection import connect
from cordwood.embedded import resolve_url
from cordwood.errors import CordwoodError, InvalidInput
from cordwood.forecast import read_number
from cordwood.inspection import look_at_workers
from cordwood.keys import LANES, queue_keys
from cordwood.settings import QueueSettings, Settings, load
from cordwood_worker.cost_model import Coefficients
from cordwood_worker.lanes import LanePolicy
from cordwood_worker.line import batch_limits
from cordwood_worker.simulation.arrivals import Arrivals, make_arrivals, read_arrivals
from cordwood_worker.simulation.report import ALL, FleetReport, devices_for, full_speed, load_curve, simulate
from cordwood_worker.simulation.simulator import FleetPlan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


MOST_PARTS = 1e6
FETCH_S = 0.001
"""From a job's submission to its being fetched by a worker that waits, which no worker can see."""


@dataclass(frozen=True, slots=True)
class Learned:
    """What batches cost, whether they have no padding, the budget that a worker found best (0 for none), and the rest.

    The times of the rest are as in `FleetPlan`; without workers to ask they are those of a text worker on two cores.
    """

    coefficients: Coefficients
    packed: bool
    best_tokens: int = 0
    overhead_s: float = 0.002
    gap_s: float = 0.0005
    store_s: float = 0.001


@dataclass(frozen=True, slots=True)
class Traffic:
    """What comes, as the flags of the same names say it: a recording, or what one is made up of."""

    arrivals: Path | None
    rate: float | None
    load: float | None
    jobs: int
    tokens: float
    max_tokens: int
    lanes: str
    seed: int

    def come(self, plan: FleetPlan) -> Arrivals:
        """Read or make the arrivals; a load is of this fleet. Raises InvalidInput."""
        if sum(given is not None for given in (self.arrivals, self.rate, self.load)) != 1:
            raise InvalidInput("say what comes by one of --arrivals, --rate and --load")
        if self.arrivals is not None:
            with self.arrivals.open(encoding="utf-8", newline="") as lines:
                return read_arrivals(lines)
        parts = _parts(self.lanes)
        rate = self.rate
        if self.load is not None:
            rate = self.load * plan.devices * full_speed(self.tokens, plan) / self.tokens
        return make_arrivals(
            jobs=self.jobs,
            rate=rate or 0.0,
            mean_tokens=self.tokens,
            max_tokens=self.max_tokens,
            lane_parts=parts,
            seed=self.seed,
        )


def simulate_command(config: Path | None, queue: str, flags: Mapping[str, Any]) -> None:
    """Run the simulation that the flags describe, and print what it shows; raises CordwoodError."""
    given = {name: value for name, value in flags.items() if name in Settings.model_fields and value is not None}
    settings = load(config, os.environ, given)
    if queue not in settings.queues:
        # Nobody loads this model: the queue has the general limits.
        settings = settings.model_copy(update={"queues": {queue: QueueSettings(model="simulated")}})
    learned = _parse_cost(flags["cost"], packed=not flags["padded"]) if flags["cost"] else _ask_workers(settings, queue)
    plan = FleetPlan(
        devices=flags["devices"],
        limits=batch_limits(settings, queue, learned.best_tokens),
        lookahead=settings.lookahead,
        coefficients=learned.coefficients,
        packed=learned.packed,
        policy=LanePolicy.parse(settings.lane_weights),
        overhead_s=learned.overhead_s if flags["overhead_ms"] is None else flags["overhead_ms"] / 1000,
        gap_s=learned.gap_s,
        store_s=learned.store_s,
        noise=flags["noise"],
        seed=flags["seed"],
    )
    names = ("arrivals", "rate", "load", "jobs", "tokens", "max_tokens", "lanes", "seed")
    arrivals = Traffic(**{name: flags[name] for name in names}).come(plan)
    report = simulate(arrivals, plan)
    if flags["objective_lane"] not in {lane.lane for lane in report.lanes}:
        raise InvalidInput(f"no job is in lane {flags['objective_lane']}, which --objective-lane names")
    needed = None
    if flags["objective_ms"] is not None:
        needed = devices_for(arrivals, plan, wait_p99_ms=flags["objective_ms"], lane=flags["objective_lane"])
    if flags["plot"] is not None:
        from cordwood_worker.simulation.chart import LOADS, draw

        draw(load_curve(arrivals, plan, LOADS), flags["plot"])
    _print(report, flags, needed)


def _print(report: FleetReport, flags: Mapping[str, Any], needed: int | None) -> None:
    if flags["as_json"]:
        click.echo(json.dumps({**asdict(report), "devices_for_objective": needed}, indent=2))
        return
    fields: dict[str, object] = {
        "devices": report.devices,
        "jobs": report.jobs,
        "load": f"{report.load:.2f}",
        "utilisation": f"{report.utilisation:.1%}",
        "padding": f"{report.padding:.1%}",
        "rows a batch": f"{report.rows_per_batch:.1f}",
        "jobs/s": f"{report.jobs_per_s:.1f}",
        "tokens/s": f"{report.tokens_per_s:.0f}",
        "drain s": f"{report.drain_s:.2f}",
    }
    if flags["objective_ms"] is not None:
        of = "all jobs" if flags["objective_lane"] == ALL else f"lane {flags['objective_lane']}"
        fields[f"devices for a p99 wait of {flags['objective_ms']:g} ms of {of}"] = needed or "more than 4096"
    width = max(map(len, fields))
    for name, value in fields.items():
        click.echo(f"{name:<{width}}  {value}")
    click.echo(f"\n{'LANE':<8}{'JOBS':>9}{'WAIT P50 MS':>14}{'WAIT P99 MS':>14}{'DONE P50 MS':>14}{'DONE P99 MS':>14}")
    for each in report.lanes:
        times = (each.wait_p50_ms, each.wait_p99_ms, each.done_p50_ms, each.done_p99_ms)
        click.echo(f"{each.lane:<8}{each.jobs:>9}" + "".join(f"{time:>14.1f}" for time in times))


def _parse_cost(text: str, *, packed: bool) -> Learned:
    """Read `A,B,C,D`: seconds for each token, row and square, and for each batch."""
    try:
        values = [float(part) for part in text.split(",")]
        token_s, row_s, square_s, batch_s = values
    except ValueError:
        raise InvalidInput(
            f"--cost {text!r} is not four numbers: seconds for a token, a row, a square, a batch"
        ) from None
    if not all(np.isfinite(value) and value >= 0 for value in values) or not any(values):
        raise InvalidInput(f"--cost {text!r} needs finite numbers of 0 or more, and not all 0")
    return Learned(Coefficients(token_s, row_s, square_s, batch_s), packed)


def _ask_workers(settings: Settings, queue: str) -> Learned:
    """Take what a queue's workers have learned; raises CordwoodError where none has, naming the way without them."""
    redis = connect(resolve_url(settings))
    try:
        infos = [view.info for view in look_at_workers(redis, queue_keys(queue))]
    finally:
        redis.close()
    known = [info for info in infos if isinstance(info.get("cost"), dict) and read_number(info, "tokens_per_s")]
    if not known:
        raise CordwoodError(f"no worker of queue {queue} has learned what its batches cost: say so with --cost A,B,C,D")
    costs = [info["cost"] for info in known]
    return Learned(
        Coefficients(*(_mean(costs, name) for name in ("token_s", "row_s", "square_s", "batch_s"))),
        packed=known[0].get("packed") is True,
        best_tokens=int(read_number(known[0], "max_batch_tokens")),
        overhead_s=FETCH_S + _mean(known, "prepare_s"),
        gap_s=_mean(known, "gap_s"),
        store_s=_mean(known, "store_s"),
    )


def _mean(infos: Sequence[Mapping[str, Any]], name: str) -> float:
    return sum(read_number(info, name) for info in infos) / len(infos)


def _parts(text: str) -> list[float]:
    """Read the lanes' parts of the traffic, such as `1:6:3`."""
    try:
        parts = [float(part) for part in text.split(":")]
    except ValueError:
        parts = []
    if len(parts) != len(LANES) or not all(0 <= part <= MOST_PARTS for part in parts) or not any(parts):
        raise InvalidInput(f"--lanes {text!r} is not three parts such as 1:6:3, for {', '.join(LANES)}")
    return parts
