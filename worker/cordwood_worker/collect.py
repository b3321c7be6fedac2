"""When a batch leaves and which rows are in it: the oldest row and its neighbours in length.

Pure: rows and the time are passed in, a batch comes out. Adding and taking cost O(log n) a row.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from typing import Final

from cordwood_worker.batch import Batch, Row

Cost = Callable[[int, int, int], int]
"""What a batch costs of `max_tokens`, by its number of rows, its longest row and the sum of its rows' lengths.

It must not sink as rows are added.
"""

LONGER_ROWS_BIAS: Final = 0.25
"""How the padding that a longer row causes is weighed against that of a shorter one.

A longer row fills the batch with more work for the padding it causes. On log-normal lengths (mean 60, at most 256) at a
budget of 2,048 tokens 0.25 wastes 9.2 % at 8 batches of lookahead and 3.2 % at 32, and 1.0 wastes 11.2 % and 3.3 %.
Measured with `python -m tests.docs.figures padding`.
"""


def padded_cost(rows: int, longest: int, tokens: int) -> int:
    """The cells of a padded matrix: rows times longest."""
    del tokens
    return rows * longest


def packed_cost(rows: int, longest: int, tokens: int) -> int:
    """The tokens themselves, for a backend that runs rows without padding."""
    del rows, longest
    return tokens


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What a batch may be, and how long and how often a row may be kept waiting.

    `max_tokens` bounds the batch's cost, `max_rows` its rows; a row that is over the first alone runs alone. A batch
    leaves at the latest when its oldest row has waited `max_wait_s`. No row is left behind by more than `max_bypass`
    batches with a younger row in them. Left alone, rows are bypassed up to three times as often as there are batches of
    lookahead: four times the lookahead costs nothing, less costs padding.
    """

    max_tokens: int
    max_rows: int
    max_wait_s: float
    max_bypass: int = 128

    def __post_init__(self) -> None:
        if min(self.max_tokens, self.max_rows, self.max_bypass) < 1 or not self.max_wait_s >= 0:
            raise ValueError(f"limits of a batch must be 1 or more, and the wait not negative: {self}")


class Collector:
    """Rows that wait for a batch.

    A batch is due when the buffered rows or tokens fill one, when the oldest row has waited `max_wait_s` (arrivals
    do not restart that), or when a suspect is there. It has the oldest row, and rows of the nearest lengths as far as
    the limits allow; rows of equal length leave in the order they were added. The rows of a suspect job go first, and
    never with those of another job; only the death of a worker makes suspects, so they are few.

    "Oldest" goes by `arrived_s`; rows are expected in that order, give or take the tokenising threads.
    """

    def __init__(self, limits: BatchLimits, cost: Cost = padded_cost) -> None:
        self._limits = limits
        self._cost = cost
        self._rows = _Buffer(limits, cost)
        self._suspects: OrderedDict[str, _Buffer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rows) + sum(len(rows) for rows in self._suspects.values())

    @property
    def tokens(self) -> int:
        """The lengths of all buffered rows together."""
        return self._rows.tokens + sum(rows.tokens for rows in self._suspects.values())

    @property
    def limits(self) -> BatchLimits:
        """What a batch may be now."""
        return self._limits

    def limit_tokens(self, max_tokens: int) -> None:
        """Have later batches cost no more than this; a row that is over it alone still runs alone."""
        self._limits = replace(self._limits, max_tokens=max_tokens)
        for buffer in (self._rows, *self._suspects.values()):
            buffer.limits = self._limits

    def add(self, rows: Iterable[Row]) -> None:
        """Buffer rows, oldest first."""
        for row in rows:
            buffer = self._rows
            if row.suspect:
                buffer = self._suspects.setdefault(row.job_id, _Buffer(self._limits, self._cost))
            buffer.add(row)

    def take(self, now_s: float, *, flush: bool = False) -> Batch | None:
        """Remove and return the next batch, None while none is due; `flush` makes one due if there is any row."""
        due_in_s = self.due_in_s(now_s)
        if due_in_s is None or (due_in_s > 0 and not flush):
            return None
        if not self._suspects:
            return self._rows.take()
        job_id, rows = next(iter(self._suspects.items()))
        batch = rows.take()
        if not rows:
            del self._suspects[job_id]
        return batch

    def due_in_s(self, now_s: float) -> float | None:
        """Return in how many seconds a batch is due: 0.0 if one is now, None if nothing is buffered."""
        if self._suspects:
            return 0.0
        rows, limits = self._rows, self._limits
        if not rows:
            return None
        if len(rows) >= limits.max_rows or rows.tokens >= limits.max_tokens:
            return 0.0
        return max(0.0, rows.oldest_arrival_s + limits.max_wait_s - now_s)

    def discard(self, job_ids: Collection[str]) -> int:
        """Drop the rows of these jobs and return how many there were; it walks the whole buffer."""
        unwanted = frozenset(job_ids)
        dropped = self._rows.discard(unwanted)
        for job_id in unwanted & self._suspects.keys():
            dropped += len(self._suspects.pop(job_id))
        return dropped


class _Buffer:
    """Rows by age and by length, numbered as they were added.

    Invariant 6 is kept here. The oldest row is in every batch, so each row is taken in the end. A row is bypassed by a
    batch that has a row with a higher number but not this one. `_newest` has the highest number of each batch, so a
    row's bypasses are the entries above its own number: of two buffered rows the elder has at least as many. Rows with
    `max_bypass` of them are overdue, and while one is, batches take the overdue ones first and by number; unless all
    of them fit, they take nothing else, which bypasses nobody. So no row exceeds `max_bypass`.
    """

    def __init__(self, limits: BatchLimits, cost: Cost) -> None:
        self.tokens = 0
        self.limits = limits
        self._cost = cost
        self._added = 0
        self._by_number: OrderedDict[int, Row] = OrderedDict()
        self._by_length: dict[int, OrderedDict[int, Row]] = {}
        self._lengths: list[int] = []
        self._arrivals: list[tuple[float, int]] = []
        self._newest: list[int] = []

    def __len__(self) -> int:
        return len(self._by_number)

    @property
    def oldest_arrival_s(self) -> float:
        """When the oldest row arrived; there must be one."""
        return self._oldest()[0]

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
        heappush(self._arrivals, (row.arrived_s, number))
        self.tokens += length

    def take(self) -> Batch:
        """Remove and return the next batch; there must be a row."""
        draft = _Draft(self.limits, self._cost)
        if self._take_urgent(draft):
            self._take_neighbours(draft)
        insort(self._newest, draft.newest)
        oldest = next(iter(self._by_number), self._added)
        del self._newest[: bisect_right(self._newest, oldest)]
        return Batch(tuple(draft.rows))

    def discard(self, job_ids: Collection[str]) -> int:
        """Drop the rows of these jobs and return how many there were."""
        unwanted = [number for number, row in self._by_number.items() if row.job_id in job_ids]
        for number in unwanted:
            self._remove(number)
        return len(unwanted)

    def _take_urgent(self, draft: _Draft) -> bool:
        """Take the overdue rows by age, or else the oldest; return whether others may join them."""
        while self._by_number and self._is_overdue(number := next(iter(self._by_number))):
            if draft.rows and not draft.has_room(self._by_number[number].length):
                return False
            draft.add(number, self._remove(number))
        if not draft.rows:
            number = self._oldest()[1]
            draft.add(number, self._remove(number))
        return True

    def _take_neighbours(self, draft: _Draft) -> None:
        """Take rows of the nearest lengths, one by one, until neither the next shorter nor the next longer fits."""
        while True:
            above = bisect_right(self._lengths, draft.longest)
            shorter = self._lengths[above - 1] if above else None
            longer = self._lengths[above] if above < len(self._lengths) else None
            length = draft.choose(shorter, longer)
            if length is None:
                return
            number = next(iter(self._by_length[length]))
            draft.add(number, self._remove(number))

    def _is_overdue(self, number: int) -> bool:
        return len(self._newest) - bisect_right(self._newest, number) >= self.limits.max_bypass

    def _oldest(self) -> tuple[float, int]:
        """Return the arrival and number of the oldest row, forgetting rows that have left."""
        while self._arrivals[0][1] not in self._by_number:
            heappop(self._arrivals)
        return self._arrivals[0]

    def _remove(self, number: int) -> Row:
        row = self._by_number.pop(number)
        bucket = self._by_length[row.length]
        del bucket[number]
        if not bucket:
            del self._by_length[row.length]
            del self._lengths[bisect_left(self._lengths, row.length)]
        self.tokens -= row.length
        if len(self._arrivals) > 2 * len(self._by_number) + 64:
            self._arrivals = [entry for entry in self._arrivals if entry[1] in self._by_number]
            heapify(self._arrivals)
        return row


class _Draft:
    """A batch while it is put together: what is in it, and what still fits."""

    def __init__(self, limits: BatchLimits, cost: Cost) -> None:
        self.rows: list[Row] = []
        self.longest = 0
        self.newest = -1
        self._tokens = 0
        self._spent = 0
        self._limits = limits
        self._cost = cost

    def add(self, number: int, row: Row) -> None:
        """Put a row in; the first one goes in whatever its length."""
        length = row.length
        self._spent = self._cost_with(length)
        self._tokens += length
        self.rows.append(row)
        self.longest = max(self.longest, length)
        self.newest = max(self.newest, number)

    def has_room(self, length: int) -> bool:
        """Whether a row of this length fits."""
        return len(self.rows) < self._limits.max_rows and self._cost_with(length) <= self._limits.max_tokens

    def choose(self, shorter: int | None, longer: int | None) -> int | None:
        """Return which of two lengths to add: of those that fit the one that causes less padding, None if none fits."""
        if shorter is not None and not self.has_room(shorter):
            shorter = None
        if shorter == self.longest or longer is None or not self.has_room(longer):
            return shorter
        if shorter is None or self._padding_by(longer) * LONGER_ROWS_BIAS < self._padding_by(shorter):
            return longer
        return shorter

    def _padding_by(self, length: int) -> int:
        return self._cost_with(length) - self._spent - length

    def _cost_with(self, length: int) -> int:
        return self._cost(len(self.rows) + 1, max(self.longest, length), self._tokens + length)
