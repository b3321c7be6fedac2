"""What a worker holds: bounds, tokens, and entries of lost replies."""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from cordwood_worker.entry import Attempt, Entry
from cordwood_worker.held import Held, Room


def entry(number: int, hint: int = 10) -> Entry:
    """An entry of the normal lane."""
    return Entry("normal", f"{number}-0", f"job-{number}", hint, 0.0)


def test_an_entry_delivered_twice_is_taken_in_once() -> None:
    """Whoever delivers it again: the fetcher, the self-check or a takeover."""
    held = Held(Room(10, 1000))
    assert held.add([entry(1), entry(2)]) == [entry(1), entry(2)]
    assert held.add([entry(2), entry(3)]) == [entry(3)]
    assert len(held) == 3


def test_an_empty_worker_may_always_fetch_one() -> None:
    """Even if jobs of late were larger than all it may hold: they run alone."""
    held = Held(Room(10, 100))
    for _ in range(50):
        held.add([entry(1, hint=5000)])
        held.remove([entry(1, hint=5000)])
    assert held.room() == 1


@given(st.lists(st.integers(1, 2000), max_size=60))
def test_room_never_lets_it_hold_more_rows_than_its_bound(hints: list[int]) -> None:
    """However long the jobs are."""
    held = Held(Room(20, 5000))
    for number, hint in enumerate(hints):
        if held.room() > 0:
            held.add([entry(number, hint)])
    assert len(held) <= 20


def test_a_long_buffer_leaves_no_room() -> None:
    """Tokens count, not only rows."""
    held = Held(Room(1000, 500))
    held.add([entry(1, hint=600)])
    assert held.room() == 0


def test_letting_go_wakes_who_waits_for_room() -> None:
    """The fetcher waits without polling."""
    held = Held(Room(1, 1000))
    held.add([entry(1)])
    assert not held.wait_for_release(held.load(), 0.0)
    full = held.load()
    answers: list[bool] = []
    waiter = threading.Thread(target=lambda: answers.append(held.wait_for_release(full, 10.0)))
    waiter.start()
    held.remove([entry(1)])
    waiter.join(10.0)
    assert answers == [True]


def test_everything_carries_the_tokens_of_what_was_started() -> None:
    """So that a shutdown can hand it all back."""
    held = Held(Room(10, 1000))
    held.add([entry(1), entry(2)])
    held.begin([Attempt(entry(1), "token", 1, suspect=False, payload=b"")])
    assert held.everything() == [(entry(1), "token"), (entry(2), "")]
    held.remove([entry(1), entry(2)])
    assert held.everything() == []


def test_only_what_is_unheld_twice_in_a_row_counts_as_lost() -> None:
    """At the first look an entry may be on its way in or out."""
    held = Held(Room(10, 1000))
    held.add([entry(1)])
    pending = [entry(1).place, entry(2).place]
    assert held.compare(pending) == []
    assert held.compare([*pending, entry(3).place]) == [entry(2).place]
    assert held.compare([entry(1).place]) == []
    assert held.compare([entry(3).place]) == []
