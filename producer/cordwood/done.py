"""Who waits for which job, and what the `done` stream says: pure, for both clients."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from cordwood.keys import Keys
    from cordwood.steps import Argument

READ_BLOCK_MS: Final = 1000
READ_COUNT: Final = 100
_MAX_DIGITS: Final = 20


@dataclass(frozen=True, slots=True)
class Position:
    """How far a `done` stream was read: its last entry, and that entry's serial number (-1 if it has none)."""

    entry_id: str = "0-0"
    serial: int = 0


class Signal(Protocol):
    """What wakes a wait: an event of threads or of asyncio."""

    def set(self) -> None:
        """Wake it."""
        ...


class Ticket:
    """One wait: what it waits for and what it was told. Its wait alone takes from it; the table gives."""

    def __init__(self, job_ids: Iterable[str], signal: Signal) -> None:
        self.job_ids = set(job_ids)
        self.signal = signal
        self.told: dict[str, None] = {}
        self.must_check_all = False


class DoneTable:
    """The open tickets of one client and queue. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tickets: dict[str, list[Ticket]] = {}
        self._open: set[Ticket] = set()

    def open(self, ticket: Ticket) -> None:
        """Tell this ticket from now on."""
        with self._lock:
            self._open.add(ticket)
            for job_id in ticket.job_ids:
                self._tickets.setdefault(job_id, []).append(ticket)

    def close(self, ticket: Ticket) -> None:
        """Tell this ticket nothing more. Closing twice does no harm."""
        with self._lock:
            self._open.discard(ticket)
            for job_id in ticket.job_ids:
                left = [other for other in self._tickets.get(job_id, []) if other is not ticket]
                if left:
                    self._tickets[job_id] = left
                else:
                    self._tickets.pop(job_id, None)

    def tell(self, job_ids: Iterable[str]) -> None:
        """Wake the tickets that wait for one of these jobs."""
        woken: set[Ticket] = set()
        with self._lock:
            for job_id in job_ids:
                for ticket in self._tickets.get(job_id, []):
                    ticket.told[job_id] = None
                    woken.add(ticket)
        for ticket in woken:
            ticket.signal.set()

    def tell_gap(self) -> None:
        """Wake all tickets: something may have been missed, so each must look at all it waits for."""
        with self._lock:
            tickets = list(self._open)
            for ticket in tickets:
                ticket.must_check_all = True
        for ticket in tickets:
            ticket.signal.set()

    def take(self, ticket: Ticket) -> tuple[list[str], bool]:
        """Return what the ticket was told since the last time, in order, and whether it must check everything."""
        with self._lock:
            told, check_all = list(ticket.told), ticket.must_check_all
            ticket.told, ticket.must_check_all = {}, False
            return told, check_all

    @property
    def is_idle(self) -> bool:
        """Whether nobody waits."""
        return not self._open


def position_commands(keys: Keys, shard: int) -> tuple[tuple[Argument, ...], ...]:
    """The commands whose replies `read_position` wants, in this order: a stream may be empty and yet have a past."""
    return ("HGET", keys.named("stats"), f"done:{shard}"), ("XREVRANGE", keys.done(shard), "+", "-", "COUNT", 1)


def read_position(replies: Sequence[Any]) -> Position:
    """Read where a `done` stream stands from the replies to `position_commands`."""
    counted, newest = replies
    if not newest:
        return Position(serial=_number(counted or b"0"))
    entry_id, fields = newest[0]
    _, serial = _read_fields(fields)
    return Position(entry_id.decode(), serial)


def read_done(reply: Any, position: Position) -> tuple[list[str], bool, Position]:
    """Read an XREAD reply: the jobs that ended, whether entries are missing before one, and the new position."""
    job_ids: list[str] = []
    gap = False
    for _, entries in reply or []:
        for entry_id, fields in entries:
            ids, serial = _read_fields(fields)
            gap = gap or serial != position.serial + 1
            position = Position(entry_id.decode(), serial)
            job_ids += ids
    return job_ids, gap, position


def _read_fields(fields: Mapping[bytes, bytes]) -> tuple[list[str], int]:
    ids = fields.get(b"ids", b"").decode("utf-8", "replace").split(" ")
    return ids, _number(fields.get(b"n", b""))


def _number(text: bytes) -> int:
    return int(text) if text.isdigit() and len(text) < _MAX_DIGITS else -1
