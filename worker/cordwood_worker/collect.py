"""When a batch leaves and which rows are in it: the most urgent row of the lane whose turn it is, and its neighbours.

Pure: rows and the time are passed in, a batch comes out. Adding and taking cost O(log n) a row.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import replace
from math import inf

from cordwood.keys import LANES
from cordwood_worker.batch import Batch, Row
from cordwood_worker.draft import BatchLimits, Cost, Draft, padded_cost
from cordwood_worker.lanes import LanePolicy, LaneTurns
from cordwood_worker.waiting_rows import WaitingRows


class Collector:
    """Rows that wait for a batch.

    A batch is due when the buffered rows or tokens fill one, when the oldest row has waited `max_wait_s` (arrivals
    do not restart that), or when a suspect is there. It is led by a lane, by `policy`: it has that lane's most urgent
    row, and rows of the nearest lengths as far as the limits allow, of that lane first; what room these leave is the
    other lanes'. Rows of equal length, lane and deadline leave in the order they were added. The rows of a suspect job
    go first, and never with those of another job; only the death of a worker makes suspects, so they are few.

    "Oldest" goes by `arrived_s`; rows are expected in that order, give or take the tokenising threads.
    """

    def __init__(self, limits: BatchLimits, cost: Cost = padded_cost, policy: LanePolicy | None = None) -> None:
        self._limits = limits
        self._cost = cost
        self._turns = LaneTurns(policy or LanePolicy())
        self._lanes = {lane: WaitingRows(limits) for lane in LANES}
        self._suspects: OrderedDict[str, WaitingRows] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values())) + sum(map(len, self._suspects.values()))

    @property
    def tokens(self) -> int:
        """The lengths of all buffered rows together."""
        return sum(rows.tokens for rows in (*self._lanes.values(), *self._suspects.values()))

    @property
    def limits(self) -> BatchLimits:
        """What a batch may be now."""
        return self._limits

    @property
    def oldest_s(self) -> float:
        """When the oldest row arrived; inf if there is none."""
        return min(rows.oldest_s for rows in (*self._lanes.values(), *self._suspects.values()))

    @property
    def deadline_s(self) -> float:
        """The earliest deadline of all rows; inf if none has one."""
        return min(rows.deadline_s for rows in self._lanes.values())

    def limit_tokens(self, max_tokens: int) -> None:
        """Have later batches cost no more than this; a row that is over it alone still runs alone."""
        self._set_limits(replace(self._limits, max_tokens=max_tokens))

    def limit_bypass(self, max_bypass: int) -> None:
        """Have rows be bypassed no more often than this by later batches."""
        self._set_limits(replace(self._limits, max_bypass=max_bypass))

    def add(self, rows: Iterable[Row]) -> None:
        """Buffer rows, oldest first."""
        for row in rows:
            waiting = self._lanes[row.lane]
            if row.suspect:
                waiting = self._suspects.setdefault(row.job_id, WaitingRows(self._limits))
            waiting.add(row)

    def take(self, now_s: float, *, flush: bool = False, worth: float = inf) -> Batch | None:
        """Remove and return the next batch, None while none is due; `flush` makes one due if there is any row.

        `worth` is the padding, in tokens, that it is worth to have one batch less.
        """
        due_in_s = self.due_in_s(now_s)
        if due_in_s is None or (due_in_s > 0 and not flush):
            return None
        draft = Draft(self._limits, self._cost, worth)
        if self._suspects:
            job_id, rows = next(iter(self._suspects.items()))
            rows.fill(draft)
            if not rows:
                del self._suspects[job_id]
        else:
            self._fill(draft)
        return Batch(tuple(draft.rows))

    def due_in_s(self, now_s: float) -> float | None:
        """Return in how many seconds a batch is due: 0.0 if one is now, None if nothing is buffered."""
        if self._suspects:
            return 0.0
        rows = len(self)
        if not rows:
            return None
        if rows >= self._limits.max_rows or self.tokens >= self._limits.max_tokens:
            return 0.0
        return max(0.0, self.oldest_s + self._limits.max_wait_s - now_s)

    def discard(self, job_ids: Collection[str]) -> int:
        """Drop the rows of these jobs and return how many there were; it walks the whole buffer."""
        unwanted = frozenset(job_ids)
        dropped = sum(rows.discard(unwanted) for rows in self._lanes.values())
        for job_id in unwanted & self._suspects.keys():
            dropped += len(self._suspects.pop(job_id))
        return dropped

    def _set_limits(self, limits: BatchLimits) -> None:
        self._limits = limits
        for rows in (*self._lanes.values(), *self._suspects.values()):
            rows.limits = limits

    def _fill(self, draft: Draft) -> None:
        leader, *others = self._turns.choose([lane for lane, rows in self._lanes.items() if rows])
        self._lanes[leader].fill(draft)
        self._turns.charge(leader, draft.tokens)
        for lane in others:
            self._lanes[lane].fill(draft)
