import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cordwood.done import DoneTable, Position, Ticket, position_commands, read_done, read_position
from cordwood.keys import queue_keys


def entry(number: int, serial: bytes | None, ids: bytes = b"a b") -> tuple[bytes, dict[bytes, bytes]]:
    """One entry of a `done` stream."""
    return b"%d-0" % number, {b"ids": ids} if serial is None else {b"n": serial, b"ids": ids}


def waiting(*job_ids: str) -> Ticket:
    """A ticket with a signal of its own."""
    return Ticket(job_ids, threading.Event())


def rung(ticket: Ticket) -> bool:
    """Whether the ticket was woken."""
    assert isinstance(ticket.signal, threading.Event)
    return ticket.signal.is_set()


def test_a_ticket_is_told_of_its_own_jobs_in_order_and_once() -> None:
    """Others are not woken, and what was taken is not given again."""
    table, mine, other = DoneTable(), waiting("a", "b", "c"), waiting("z")
    table.open(mine)
    table.open(other)
    table.tell(["x", "c", "a"])
    table.tell(["b", "a"])
    assert (rung(mine), rung(other)) == (True, False)
    assert table.take(mine) == (["c", "a", "b"], False)
    assert table.take(mine) == ([], False)


def test_a_gap_wakes_every_ticket_once() -> None:
    """Each must look for itself, also one that waits for nothing that was named."""
    table, tickets = DoneTable(), [waiting("a"), waiting("b")]
    for ticket in tickets:
        table.open(ticket)
    table.tell_gap()
    for ticket in tickets:
        assert rung(ticket)
        assert table.take(ticket) == ([], True)
        assert table.take(ticket) == ([], False)


def test_a_closed_ticket_is_told_nothing_and_nothing_of_it_stays() -> None:
    """Closing twice does no harm, and others that wait for the same job go on."""
    table, first, second = DoneTable(), waiting("a"), waiting("a", "b")
    table.open(first)
    table.open(second)
    table.close(first)
    table.close(first)
    table.tell(["a"])
    assert (rung(first), table.take(second)) == (False, (["a"], False))
    assert table._open == {second}
    table.close(second)
    table.tell(["a", "b"])
    table.tell_gap()
    assert table.is_idle
    assert table._tickets == {}


@given(st.lists(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=6), max_size=12))
def test_the_table_is_empty_when_all_tickets_are_closed(groups: list[list[str]]) -> None:
    """Nothing grows without bound (invariant 7)."""
    table = DoneTable()
    tickets = [waiting(*group) for group in groups]
    for ticket in tickets:
        table.open(ticket)
    table.tell("abcdef")
    for ticket in reversed(tickets):
        assert set(table.take(ticket)[0]) == ticket.job_ids
        table.close(ticket)
    assert (table.is_idle, table._tickets) == (True, {})


def test_threads_may_open_tell_and_close_at_once() -> None:
    """Every ticket is told of its job, whoever comes in between."""
    table = DoneTable()

    def wait(number: int) -> bool:
        ticket = waiting(f"job-{number}")
        table.open(ticket)
        table.tell([f"job-{number}", f"job-{number + 1}"])
        told, _ = table.take(ticket)
        table.close(ticket)
        return told == [f"job-{number}"]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(wait, range(2000)))
    assert table.is_idle


@given(st.integers(0, 5), st.lists(st.integers(1, 3), max_size=8))
def test_a_gap_is_seen_exactly_where_serial_numbers_do_not_follow(start: int, steps: list[int]) -> None:
    """Also where the first entry does not follow the position."""
    serial, entries = start, []
    for number, step in enumerate(steps, 1):
        serial += step
        entries.append(entry(number, str(serial).encode(), b"j%d" % number))
    job_ids, gap, position = read_done([[b"stream", entries]], Position("0-0", start))
    assert gap == any(step != 1 for step in steps)
    assert job_ids == [f"j{number}" for number in range(1, len(steps) + 1)]
    assert position == (Position(f"{len(steps)}-0", serial) if steps else Position("0-0", start))


def test_an_entry_of_somebody_else_is_a_gap() -> None:
    """Without a serial number, with another word in its place, or with one too long for a number."""
    for serial in (None, b"", b"x", b"-1", b"9" * 5000):
        _, gap, position = read_done([[b"stream", [entry(7, serial)]]], Position("6-0", 6))
        assert (gap, position) == (True, Position("7-0", -1))


def test_no_reply_and_an_empty_one_change_nothing() -> None:
    """That is how a blocked read ends."""
    position = Position("5-1", 9)
    for reply in (None, [], [[b"stream", []]]):
        assert read_done(reply, position) == ([], False, position)


def test_the_position_is_the_newest_entrys_or_what_was_counted() -> None:
    """A stream that was trimmed to nothing has a past, which its counter tells."""
    cases: list[tuple[Any, Position]] = [
        ((b"12", [entry(7, b"12")]), Position("7-0", 12)),
        ((b"11", [entry(7, b"12")]), Position("7-0", 12)),
        ((b"12", []), Position("0-0", 12)),
        ((None, []), Position("0-0", 0)),
        ((b"odd", []), Position("0-0", -1)),
        ((None, [entry(7, None)]), Position("7-0", -1)),
    ]
    for replies, expected in cases:
        assert read_position(replies) == expected
    keys = queue_keys("q")
    assert position_commands(keys, 3) == (
        ("HGET", keys.named("stats"), "done:3"),
        ("XREVRANGE", keys.done(3), "+", "-", "COUNT", 1),
    )
