"""Playing a script of arrivals and batches against a collector, and what is to be known of it afterwards."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from cordwood_worker.batch import Batch, Row
from cordwood_worker.collect import Collector
from cordwood_worker.draft import BatchLimits, Cost, packed_cost, padded_cost
from tests.worker.rows import make_row, numbers

brisk = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
COSTS: dict[str, Cost] = {"padded": padded_cost, "packed": packed_cost}


@dataclass
class History:
    """What was added and taken, in order; row n was the n-th to be added."""

    rows: list[Row] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    waiting: list[set[int]] = field(default_factory=list)
    """The numbers of the rows that a batch left behind."""
    budgets: list[int] = field(default_factory=list)
    """What each batch was allowed to cost."""

    @property
    def leaving(self) -> dict[int, int]:
        """Which batch each row left in."""
        return {number: at for at, batch in enumerate(self.batches) for number in numbers(batch)}

    def bypasses(self) -> Counter[int]:
        """How often each row was left behind by a batch with a younger row of its lane."""
        counts: Counter[int] = Counter()
        for batch, waiting in zip(self.batches, self.waiting, strict=True):
            newest = {row.lane: row.index for row in sorted(batch.rows, key=lambda row: row.index)}
            counts.update(number for number in waiting if number < newest.get(self.rows[number].lane, -1))
        return counts


steps = st.lists(st.one_of(st.integers(1, 4), st.lists(st.integers(1, 40), min_size=1, max_size=12)), max_size=30)
"""Take some batches, or add rows of these lengths."""
limits = st.builds(
    BatchLimits,
    max_tokens=st.integers(1, 150),
    max_rows=st.integers(1, 8),
    max_wait_s=st.just(0.0),
    max_bypass=st.integers(1, 6),
)


def number_row(number: int, length: int) -> Row:
    """A row that arrives after all before it."""
    return make_row(number, length, float(number))


def play(
    script: Sequence[int | list[int]],
    collector: Collector,
    make: Callable[[int, int], Row] = number_row,
    budgets: Iterator[int] | None = None,
) -> History:
    """Follow the steps, then take what is left; `make` makes the row of a number and a length.

    Before each batch `budgets` says what it may cost from then on.
    """
    history = History()
    present: set[int] = set()

    def take() -> None:
        if budgets is not None:
            collector.limit_tokens(next(budgets))
        batch = collector.take(now_s=1e9, flush=True)
        if batch is not None:
            present.difference_update(numbers(batch))
            history.batches.append(batch)
            history.budgets.append(collector.limits.max_tokens)
            history.waiting.append(set(present))

    for step in script:
        if isinstance(step, int):
            for _ in range(step):
                take()
            continue
        for length in step:
            number = len(history.rows)
            history.rows.append(make(number, length))
            present.add(number)
        collector.add(history.rows[-len(step) :])
    while len(collector):
        take()
    return history


def number_row_at_random(seed: int) -> Callable[[int, int], Row]:
    """Rows that arrive in any order."""
    rng = random.Random(seed)
    return lambda number, length: make_row(number, length, rng.random())
