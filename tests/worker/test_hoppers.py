"""Several queues on one device: whose batch is next."""

from __future__ import annotations

import threading
from threading import Condition
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood_worker.batch import Row, Tokens
from cordwood_worker.collect import Collector
from cordwood_worker.draft import BatchLimits
from cordwood_worker.fair_turns import FairTurns
from cordwood_worker.hopper import Hopper
from cordwood_worker.hoppers import Hoppers
from cordwood_worker.served import Served


def served(queue: str, weight: float, changed: Condition) -> Served:
    """A queue whose batches are of one row."""
    hopper = Hopper(Collector(BatchLimits(100, 1, 0.0)), lambda: 0.0, None, changed)
    rest: Any = None
    return Served(queue, weight, rest, hopper, rest, rest, rest, rest)


def put(into: Served, *job_ids: str) -> None:
    """Put rows into a queue's hopper."""
    into.hopper.put([Row(job_id, 0, Tokens([1]), 0.0) for job_id in job_ids])


def names(hoppers: Hoppers, count: int, seconds: dict[str, float]) -> list[str]:
    """Take batches, of so many seconds each by queue, and return whose they were."""
    order: list[str] = []
    for _ in range(count):
        found = hoppers.take()
        assert found is not None
        order.append(found[0].queue)
        hoppers.charge(found[0], seconds[found[0].queue])
    return order


@pytest.mark.parametrize(
    ("weights", "seconds", "share"), [((1, 1), (1, 1), 0.5), ((3, 1), (1, 1), 0.75), ((1, 1), (1, 3), 0.75)]
)
def test_queues_share_the_time_of_the_device_by_weight(
    weights: tuple[float, float], seconds: tuple[float, float], share: float
) -> None:
    """Not the number of batches: one whose batches take three times as long gets a third as many."""
    changed = Condition()
    one, two = (served(name, weight, changed) for name, weight in zip("ab", weights, strict=True))
    hoppers = Hoppers([one, two], changed)
    for each in (one, two):
        put(each, *[f"{each.queue}{number}" for number in range(100)])
    order = names(hoppers, 80, dict(zip("ab", seconds, strict=True)))
    assert order.count("a") / 80 == pytest.approx(share, abs=0.03)


def test_a_queue_that_is_alone_has_all_of_it_and_owes_nothing() -> None:
    """When the other one comes they share from then on."""
    changed = Condition()
    one, two = served("a", 1, changed), served("b", 1, changed)
    hoppers = Hoppers([one, two], changed)
    put(one, *[f"a{number}" for number in range(60)])
    assert names(hoppers, 20, {"a": 1.0}) == ["a"] * 20
    put(two, *[f"b{number}" for number in range(60)])
    assert names(hoppers, 20, {"a": 1.0, "b": 1.0}).count("b") in {10, 11}


def test_a_row_of_any_queue_wakes_whoever_waits() -> None:
    """They share a condition."""
    changed = Condition()
    one, two = served("a", 1, changed), served("b", 1, changed)
    hoppers = Hoppers([one, two], changed)
    taken: list[str] = []

    def take() -> None:
        while not taken:
            found = hoppers.take()
            taken.extend([found[0].queue] if found else [])

    taker = threading.Thread(target=take)
    taker.start()
    put(two, "b0")
    taker.join(10.0)
    assert taken == ["b"]


def test_closed_hoppers_give_out_nothing() -> None:
    """Each by itself."""
    changed = Condition()
    one, two = served("a", 1, changed), served("b", 1, changed)
    hoppers = Hoppers([one, two], changed)
    put(one, "a0")
    put(two, "b0")
    one.hopper.close()
    found = hoppers.take()
    assert found is not None
    assert found[0] is two
    two.hopper.close()
    assert hoppers.take() is None


@given(st.lists(st.floats(0.01, 5.0), min_size=1, max_size=200), st.tuples(*[st.integers(1, 9)] * 3))
def test_what_two_names_had_by_weight_differs_by_one_piece_of_each(
    sizes: list[float], weights: tuple[int, ...]
) -> None:
    """While both always have work: the theorem of start-time fair queueing."""
    by_name: dict[str, float] = dict(zip("abc", weights, strict=True))
    turns = FairTurns(by_name)
    had = dict.fromkeys(by_name, 0.0)
    largest = dict.fromkeys(by_name, 0.0)
    for size in sizes:
        name = turns.order("abc")[0]
        turns.charge(name, size)
        had[name] += size / by_name[name]
        largest[name] = max(largest[name], size / by_name[name])
        for one in by_name:
            for other in by_name:
                assert had[one] - had[other] <= largest[one] + largest[other] + 1e-9
