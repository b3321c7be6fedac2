"""Numbers in the order of their keys, of which any may leave at any time."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

SLACK: Final = 64
"""How many more than twice the live numbers may be kept, before the gone ones are swept out."""


class Ordered:
    """A heap that forgets lazily: adding and asking for the first cost O(log n), leaving O(1), all amortised."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        self._keys: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, number: int, key: float) -> None:
        """Put in a number that is not in it."""
        self._keys[number] = key
        heappush(self._heap, (key, number))

    def remove(self, number: int) -> None:
        """Take out a number, if it is in it."""
        if self._keys.pop(number, None) is not None and len(self._heap) > 2 * len(self._keys) + SLACK:
            self._heap = [(key, number) for number, key in self._keys.items()]
            heapify(self._heap)

    def first(self) -> tuple[float, int] | None:
        """Return the smallest key and its number, the smaller number of equals; None if it is empty."""
        while self._heap and self._heap[0][1] not in self._keys:
            heappop(self._heap)
        return self._heap[0] if self._heap else None
