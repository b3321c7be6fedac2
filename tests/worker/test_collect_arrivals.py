"""The collector under a simulated clock and over long runs: waiting, full batches, padding and its own cost."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cordwood.keys import LANES
from cordwood_worker.batch import Batch, Row
from cordwood_worker.collect import Collector
from cordwood_worker.draft import BatchLimits
from tests.worker.rows import make_row

brisk = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def drain(collector: Collector, arrivals: Iterable[Row]) -> list[tuple[float, Batch]]:
    """Run a simulated clock over the arrivals, taking each batch at the moment that it is due."""
    left: list[tuple[float, Batch]] = []
    waiting = sorted(arrivals, key=lambda row: row.arrived_s)
    now_s = 0.0
    while True:
        while waiting and waiting[0].arrived_s <= now_s:
            collector.add([waiting.pop(0)])
            while (batch := collector.take(now_s)) is not None:
                left.append((now_s, batch))
        while (batch := collector.take(now_s)) is not None:
            left.append((now_s, batch))
        due_in_s = collector.due_in_s(now_s)
        moments = [row.arrived_s for row in waiting[:1]] + ([] if due_in_s is None else [now_s + due_in_s])
        if not moments:
            return left
        now_s = min(moments)


@brisk
@given(
    gaps=st.lists(st.tuples(st.integers(0, 300), st.integers(1, 60)), max_size=60),
    wait=st.integers(0, 400),
    rows=st.integers(1, 8),
    lanes=st.lists(st.sampled_from(LANES), min_size=1, max_size=7),
)
def test_no_row_waits_longer_than_the_timer(
    gaps: list[tuple[int, int]], wait: int, rows: int, lanes: list[str]
) -> None:
    """With a free device every row leaves at the latest when it has waited max_wait_s, and a lone one exactly then."""
    at = 0
    arrivals: list[Row] = []
    for number, (gap, length) in enumerate(gaps):
        at += gap
        lane = lanes[number % len(lanes)]
        arrivals.append(make_row(number, length, at / 1024, lane=lane))  # binary fractions, so that the clock is exact
    collector = Collector(BatchLimits(max_tokens=100, max_rows=rows, max_wait_s=wait / 1024))
    left = drain(collector, arrivals)
    assert sum(len(batch.rows) for _, batch in left) == len(arrivals)
    for now_s, batch in left:
        oldest_s = min(row.arrived_s for row in batch.rows)
        assert now_s - oldest_s <= wait / 1024


def test_c05_20000_tiny_texts_make_full_batches() -> None:
    """(a) No batch has over 64 rows, the mean is at least 58, and all 20,000 come out once."""
    draw = random.Random(5)
    collector = Collector(BatchLimits(max_tokens=4096, max_rows=64, max_wait_s=0.2))
    left = drain(collector, [make_row(number, draw.randint(3, 5)) for number in range(20_000)])
    sizes = [len(batch.rows) for _, batch in left]
    assert max(sizes) <= 64
    assert sum(sizes) / len(sizes) >= 58
    assert len({row.job_id for _, batch in left for row in batch.rows}) == 20_000
    assert max(now_s for now_s, _ in left) <= 0.2


def test_c05_65_texts_make_two_batches_and_the_single_one_waits_for_its_timer() -> None:
    """(c) 64 rows leave at once, the 65th as a lonely text does: after max_wait_s."""
    collector = Collector(BatchLimits(max_tokens=4096, max_rows=64, max_wait_s=0.25))
    left = drain(collector, [make_row(number, 4) for number in range(65)])
    assert [(now_s, len(batch.rows)) for now_s, batch in left] == [(0.0, 64), (0.25, 1)]


def test_c05_a_steady_trickle_does_not_restart_the_timer() -> None:
    """(d) A text every 150 ms for 5 s: the first of each batch waits exactly max_wait_s, never longer."""
    collector = Collector(BatchLimits(max_tokens=4096, max_rows=64, max_wait_s=0.2))
    left = drain(collector, [make_row(number, 4, number * 0.15) for number in range(34)])
    waits_s = [now_s - min(row.arrived_s for row in batch.rows) for now_s, batch in left]
    assert max(waits_s) <= 0.2 + 1e-9
    assert {len(batch.rows) for _, batch in left} == {2}


def mixed_lengths(count: int) -> list[int]:
    """Log-normal lengths of mean about 62 tokens, cut at 256."""
    draw = random.Random(11)
    return [min(256, max(1, round(draw.lognormvariate(3.807, 0.8)))) for _ in range(count)]


@pytest.mark.parametrize(("lookahead", "most_waste"), [(8, 0.13), (32, 0.045)])
def test_padding_waste_is_small(lookahead: int, most_waste: float) -> None:
    """With this many batches buffered, few cells of the padded matrices are padding, and the bound costs nothing."""
    collector = Collector(BatchLimits(2048, 128, max_wait_s=0.0, max_bypass=4 * lookahead))
    real = padded = 0
    for number, length in enumerate(mixed_lengths(8_000)):
        collector.add([make_row(number, length, number * 1e-6)])
        if collector.tokens >= lookahead * 2048:
            batch = collector.take(1.0)
            assert batch is not None
            real += batch.real_tokens
            padded += batch.padded_tokens
    assert 1 - real / padded <= most_waste


def test_collecting_costs_microseconds_a_row() -> None:
    """At 10,000 buffered rows: the aim is 20 µs a row, and the test allows for a slow machine."""
    rows = [make_row(number, length, number * 1e-6) for number, length in enumerate(mixed_lengths(16_000))]
    collector = Collector(BatchLimits(2048, 128, max_wait_s=0.0))
    collector.add(rows[:10_000])
    position = 10_000
    began_s = time.process_time()
    while position < len(rows):
        batch = collector.take(1.0)
        assert batch is not None
        collector.add(rows[position : position + len(batch.rows)])
        position += len(batch.rows)
    assert (time.process_time() - began_s) / 6_000 <= 100e-6
