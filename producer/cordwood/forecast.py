"""How long a queue's jobs will take, by what its workers have learned of their devices. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any, Final

from cordwood.keys import AGAIN, LANES
from cordwood.settings import STRICT, are_lane_weights

DEFAULT_WEIGHTS: Final = "6:3:1"


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a queue's live workers say they can do; all 0.0 while no worker has learned anything.

    `tokens_per_s` is of all workers together in full batches, `tokens_per_hint` the tokens that a token of length hint
    comes to, `tokens_per_job` the mean of late; `batch_s` and `token_s` are what a worker's batch takes whatever is in
    it, and for each token more.
    """

    workers: int = 0
    tokens_per_s: float = 0.0
    tokens_per_hint: float = 0.0
    tokens_per_job: float = 0.0
    batch_s: float = 0.0
    token_s: float = 0.0
    lane_weights: str = DEFAULT_WEIGHTS

    @property
    def is_known(self) -> bool:
        """Whether anything can be predicted."""
        return min(self.tokens_per_s, self.tokens_per_hint, self.tokens_per_job) > 0

    def drain_s(self, jobs: int) -> float | None:
        """Return in how many seconds so many jobs are computed; None if that is not known, 0.0 for no jobs."""
        if not jobs:
            return 0.0
        return jobs * self.tokens_per_job / self.tokens_per_s if self.is_known else None

    def job_s(self, hint: int) -> float:
        """Return in how many seconds a job with this length hint is computed alone."""
        return self.batch_s + self.token_s * self.tokens_per_hint * hint


@dataclass(slots=True)
class Backlog:
    """Tokens that are before a new job of each lane, in anybody's hands or nobody's; `again` is before all."""

    tokens: dict[str, float] = field(default_factory=dict)

    def add(self, lane: str, tokens: float) -> None:
        """Note that more is before the next job of a lane."""
        self.tokens[lane] = self.tokens.get(lane, 0.0) + tokens


def capacity_of(infos: Iterable[Mapping[str, Any]]) -> Capacity:
    """Put together what live workers said of themselves; what cannot be read counts as not said.

    Workers that have learned nothing yet are taken to be as fast as the others are on average.
    """
    infos = list(infos)
    speeds = [speed for info in infos if (speed := read_number(info, "tokens_per_s")) > 0]
    costs = [cost for info in infos if isinstance(cost := info.get("cost"), Mapping)]
    said = [str(info.get("lane_weights")) for info in infos]
    return Capacity(
        workers=len(infos),
        tokens_per_s=_mean(speeds) * len(infos),
        tokens_per_hint=_mean([value for info in infos if (value := read_number(info, "tokens_per_hint")) > 0]),
        tokens_per_job=_mean([value for info in infos if (value := read_number(info, "tokens_per_job")) > 0]),
        batch_s=_mean([read_number(cost, "batch_s") + read_number(cost, "row_s") for cost in costs]),
        token_s=_mean([read_number(cost, "token_s") for cost in costs]),
        lane_weights=next(filter(are_lane_weights, said), DEFAULT_WEIGHTS),
    )


def served_in_s(lane: str, backlog: Mapping[str, float], tokens_per_s: float, lane_weights: str) -> float:
    """Return in how many seconds all that is before a new job of a lane is computed; `backlog` in tokens by lane.

    While lanes have work each gets its weight's part of the tokens, as in the fluid model of A. K. Parekh and
    R. G. Gallager, "A generalized processor sharing approach to flow control" (IEEE/ACM Transactions on Networking,
    1993); with `strict` the higher lanes go first. `again` goes before all.
    """
    if tokens_per_s <= 0:
        return inf
    left: dict[str, float] = {name: backlog.get(name, 0.0) for name in LANES}
    waited = backlog.get(AGAIN, 0.0)
    if lane_weights == STRICT:
        before = LANES[: LANES.index(lane) + 1]
        return (waited + sum(left[name] for name in before)) / tokens_per_s
    weights: dict[str, int] = dict(zip(LANES, map(int, lane_weights.split(":")), strict=True))
    while left[lane] > 0:
        active = [name for name in LANES if left[name] > 0]
        total = sum(weights[name] for name in active)
        # Until the first of them is empty: then its part is the others'.
        step = min(left[name] * total / weights[name] for name in active)
        waited += step
        left = {name: _less(left[name], step * weights[name] / total if name in active else 0.0) for name in LANES}
    return waited / tokens_per_s


def _less(amount: float, taken: float) -> float:
    """Subtract, but let no rounding error count as work that is left."""
    return rest if (rest := amount - taken) > 1e-9 * amount else 0.0


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def read_number(fields: Mapping[str, Any], name: str) -> float:
    """Read one of the numbers that a worker says of itself; 0.0 for what is none, not finite or negative."""
    value: Any = fields.get(name)
    return float(value) if type(value) in {int, float} and isfinite(value) and value >= 0 else 0.0
