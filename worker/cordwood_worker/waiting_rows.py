"""The rows of one lane that wait for a batch, by age, by deadline and by length. Pure; O(log n) a row."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Collection
from math import inf

from cordwood_worker.batch import Row
from cordwood_worker.draft import BatchLimits, Draft
from cordwood_worker.ordered import Ordered


class WaitingRows:
    """Rows of one lane, numbered as they were added.

    Invariant 6 is kept here for the rows of a lane. The first of a batch that this lane leads is the row of the
    earliest deadline, or where none has one the oldest; neighbours in length join it. A row is bypassed by a batch that
    has a row of its lane with a higher number but not this one. `_newest` has the highest number of each batch, so a
    row's bypasses are the entries above its own number: of two waiting rows the elder has at least as many. Rows with
    `max_bypass` of them are overdue, and while one is, batches take the overdue ones first and by number; unless all
    of them fit, they take nothing else of the lane, which bypasses nobody. So no row exceeds `max_bypass`, whatever
    the deadlines of the others.
    """

    def __init__(self, limits: BatchLimits) -> None:
        self.tokens = 0
        self.limits = limits
        self._added = 0
        self._by_number: OrderedDict[int, Row] = OrderedDict()
        self._by_length: dict[int, OrderedDict[int, Row]] = {}
        self._lengths: list[int] = []
        self._arrivals = Ordered()
        self._deadlines = Ordered()
        self._newest: list[int] = []

    def __len__(self) -> int:
        return len(self._by_number)

    @property
    def oldest_s(self) -> float:
        """When the oldest row arrived; inf if there is none."""
        first = self._arrivals.first()
        return inf if first is None else first[0]

    @property
    def deadline_s(self) -> float:
        """The earliest deadline of a row; inf if none has one."""
        first = self._deadlines.first()
        return inf if first is None else first[0]

    def add(self, row: Row) -> None:
        """Take in one row."""
        number, length = self._added, row.length
        self._added += 1
        self._by_number[number] = row
        bucket = self._by_length.get(length)
        if bucket is None:
            bucket = self._by_length[length] = OrderedDict()
            insort(self._lengths, length)
        bucket[number] = row
        self._arrivals.add(number, row.arrived_s)
        if row.deadline_s < inf:
            self._deadlines.add(number, row.deadline_s)
        self.tokens += length

    def fill(self, draft: Draft) -> None:
        """Move rows into the batch: if it is empty the most urgent one first, then its neighbours as far as they fit.

        Rows that join those of another lane are neighbours in length of these.
        """
        taken: list[int] = []
        if self._take_urgent(draft, taken):
            self._take_neighbours(draft, taken)
        if taken:
            insort(self._newest, max(taken))
        oldest = next(iter(self._by_number), self._added)
        del self._newest[: bisect_right(self._newest, oldest)]

    def discard(self, job_ids: Collection[str]) -> int:
        """Drop the rows of these jobs and return how many there were; it walks all rows."""
        unwanted = [number for number, row in self._by_number.items() if row.job_id in job_ids]
        for number in unwanted:
            self._remove(number)
        return len(unwanted)

    def _take_urgent(self, draft: Draft, taken: list[int]) -> bool:
        """Take the overdue rows by age, or else the first of a batch; return whether others may join them."""
        while self._by_number and self._is_overdue(number := next(iter(self._by_number))):
            if draft.rows and not draft.has_room(self._by_number[number].length):
                return False
            self._move(number, draft, taken)
        if not draft.rows:
            first = self._deadlines.first() or self._arrivals.first()
            if first is not None:
                self._move(first[1], draft, taken)
        return True

    def _take_neighbours(self, draft: Draft, taken: list[int]) -> None:
        """Take rows of the nearest lengths, one by one, until neither the next shorter nor the next longer fits."""
        while True:
            above = bisect_right(self._lengths, draft.longest)
            shorter = self._lengths[above - 1] if above else None
            longer = self._lengths[above] if above < len(self._lengths) else None
            length = draft.choose(shorter, longer)
            if length is None:
                return
            self._move(next(iter(self._by_length[length])), draft, taken)

    def _is_overdue(self, number: int) -> bool:
        return len(self._newest) - bisect_right(self._newest, number) >= self.limits.max_bypass

    def _move(self, number: int, draft: Draft, taken: list[int]) -> None:
        draft.add(self._remove(number))
        taken.append(number)

    def _remove(self, number: int) -> Row:
        row = self._by_number.pop(number)
        bucket = self._by_length[row.length]
        del bucket[number]
        if not bucket:
            del self._by_length[row.length]
            del self._lengths[bisect_left(self._lengths, row.length)]
        self.tokens -= row.length
        self._arrivals.remove(number)
        self._deadlines.remove(number)
        return row
