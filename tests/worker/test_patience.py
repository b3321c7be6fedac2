"""When an idle device waits for more rows: where another job is to be expected within the wait."""

from __future__ import annotations

import pytest

from cordwood_worker.patience import MEMORY_S, Patience


def after_arrivals(every_s: float, count: int, max_wait_s: float) -> bool:
    """Whether waiting pays when the last of evenly spaced arrivals has just come."""
    patience = Patience(max_wait_s)
    for number in range(count):
        patience.note(1, number * every_s)
    return patience.pays((count - 1) * every_s)


@pytest.mark.parametrize(("every_s", "pays"), [(0.0005, True), (0.0015, True), (0.003, False), (1.0, False)])
def test_waiting_pays_where_jobs_come_more_often_than_the_wait_is_long(every_s: float, *, pays: bool) -> None:
    """2 ms of waiting, after a thousand jobs at an even pace."""
    assert after_arrivals(every_s, 1000, 0.002) is pays


def test_a_job_after_a_silence_does_not_wait_however_busy_it_was_before() -> None:
    """The rate is forgotten with its time constant."""
    patience = Patience(0.002)
    patience.note(10_000, 0.0)
    assert patience.pays(0.0)
    assert not patience.pays(6 * MEMORY_S)


def test_without_a_wait_nothing_is_waited_for() -> None:
    """`max_wait_ms = 0`."""
    assert not after_arrivals(0.0, 1000, 0.0)


def test_a_clock_that_is_read_late_by_another_thread_raises_nothing() -> None:
    """Arrivals are noted by one thread and asked about by another."""
    patience = Patience(0.002)
    patience.note(1, 5.0)
    patience.note(1, 4.9)
    assert not patience.pays(4.0)
