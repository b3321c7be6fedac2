"""Whose turn it is, by what each has had of a good that all share. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf


class FairTurns:
    """Start-time fair queueing, by names with weights.

    After P. Goyal, H. M. Vin and H. Cheng, "Start-time fair queueing" (SIGCOMM 1996). A name's next piece starts at the
    later of the virtual time and the end of its last piece, a piece of size n ends n / weight later, and the piece with
    the earliest start is next; the virtual time is the start of the piece that was served last. So over any time in
    which two names both have work, what they had divided by their weights differs by no more than one piece each. A
    name that had no work gains nothing by it, and owes nothing either.
    """

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._weights = weights
        self._virtual = 0.0
        self._ends: dict[str, float] = {}

    def order(self, names: Iterable[str]) -> list[str]:
        """Return these names in the order of their turns, the next one first; equals stay as they are."""
        return sorted(names, key=self._start)

    def charge(self, name: str, size: float) -> None:
        """Note that a piece of this size is served; a name without a weight is served for nothing."""
        start = self._start(name)
        self._virtual = start
        self._ends[name] = start + size / self._weights.get(name, inf)

    def _start(self, name: str) -> float:
        return max(self._virtual, self._ends.get(name, 0.0))
