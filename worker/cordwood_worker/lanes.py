"""Whose turn it is among a queue's lanes: fair shares by weight, or strictly by rank."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from cordwood.keys import AGAIN, LANES
from cordwood.settings import STRICT
from cordwood_worker.fair_turns import FairTurns

DEFAULT_WEIGHTS: Final[Mapping[str, int]] = {"high": 6, "normal": 3, "low": 1}
AGAIN_PART: Final = 4
"""One part in this many of what is fetched is for retries and jobs handed back, which are read first."""


@dataclass(frozen=True, slots=True)
class LanePolicy:
    """How the lanes share a device: by weight, or with `strict` the higher lane always first.

    By weight each lane that has work gets at least its weight's part of the tokens, so none starves. `strict` lets a
    lower lane wait for as long as a higher one has work.
    """

    weights: Mapping[str, int] = field(default_factory=lambda: DEFAULT_WEIGHTS)
    strict: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the setting `lane_weights`: `6:3:1` for high, normal and low, or `strict`."""
        if text == STRICT:
            return cls(strict=True)
        return cls(dict(zip(LANES, map(int, text.split(":")), strict=True)))

    def shares(self, room: int) -> dict[str, int]:
        """Divide room for entries: a quarter at most for `again`, the rest by weight, each lane at least 1.

        With `strict` all the rest is the highest lane's.
        """
        again = max(1, room // AGAIN_PART)
        rest = max(0, room - again)
        if self.strict:
            return {AGAIN: again, **dict.fromkeys(LANES, 0), LANES[0]: rest}
        total, least = sum(self.weights.values()), 1 if room > 1 else 0
        return {AGAIN: again, **{lane: max(least, rest * self.weights[lane] // total) for lane in LANES}}


class LaneTurns:
    """Whose turn it is among lanes: by `FairTurns` in tokens, or with `strict` by rank."""

    def __init__(self, policy: LanePolicy) -> None:
        self._policy = policy
        self._turns = FairTurns(policy.weights)

    def choose(self, lanes: Collection[str]) -> list[str]:
        """Return these lanes in the order of their turns, the next one first; of equals the higher lane."""
        ranked = [lane for lane in LANES if lane in lanes]
        return ranked if self._policy.strict else self._turns.order(ranked)

    def charge(self, lane: str, tokens: int) -> None:
        """Note that a batch of this lane is served; what others put into the room that it left is not charged."""
        self._turns.charge(lane, tokens)
