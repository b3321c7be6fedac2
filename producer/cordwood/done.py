"""Who waits for which job, and what the `done` stream says: pure, for both clients."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

READ_BLOCK_MS: Final = 1000
READ_COUNT: Final = 100
_MAX_DIGITS: Final = 20


@dataclass(frozen=True, slots=True)
class Position:
    """How far a `done` stream was read: its last entry, and that entry's serial number (None if not known)."""

    entry_id: str = "0-0"
    serial: int | None = None


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


def read_position(newest: Any) -> Position:
    """Read the reply of XREVRANGE for the newest entry of a `done` stream."""
    if not newest:
        return Position()
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
            gap = gap or (position.serial is not None and serial != position.serial + 1)
            position = Position(entry_id.decode(), serial)
            job_ids += ids
    return job_ids, gap, position


def _read_fields(fields: Mapping[bytes, bytes]) -> tuple[list[str], int]:
    serial = fields.get(b"n", b"")
    ids = fields.get(b"ids", b"").decode("utf-8", "replace").split(" ")
    return ids, int(serial) if serial.isdigit() and len(serial) < _MAX_DIGITS else -1
