"""How many entries a worker may fetch now, of each lane. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cordwood_worker.lanes import LanePolicy


@dataclass(frozen=True, slots=True)
class Allowance:
    """`lanes`: what may be fetched of a lane whatever the others hold; `more`: what may be fetched in all if more.

    Each lane has its share of what a worker may hold, so that a worker full of one lane still fetches the others', and
    no job waits for another lane's backlog to be computed. What a lane leaves unused is anybody's. So a worker holds
    at most twice what it may hold of one lane alone.
    """

    lanes: Mapping[str, int]
    more: int


def allow(policy: LanePolicy, held: Mapping[str, int], room: int, capacity: int) -> Allowance:
    """Return what may be fetched by who holds so many entries of each lane and has room for more, of its capacity.

    `room` may be less than the capacity leaves: where several workers share a backlog, shares are of this one's part.
    """
    shares = policy.shares(min(capacity, sum(held.values()) + room))
    return Allowance({lane: max(0, share - held.get(lane, 0)) for lane, share in shares.items()}, room)


def fair_room(depth: int, workers: int, held: int) -> int:
    """Return how many entries one of several workers may fetch, of `depth` that are ready or in anybody's hands.

    Each may hold an equal part of what is left, rounded up, so that a short backlog keeps all devices busy to its end;
    the parts shrink with the backlog, as in C. Polychronopoulos and D. Kuck, "Guided self-scheduling" (IEEE
    Transactions on Computers, 1987). A worker that holds nothing may always fetch one.
    """
    part = -(-depth // max(1, workers))
    return max(0 if held else 1, part - held)
