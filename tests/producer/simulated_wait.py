"""A wait against a made-up server and clock: nothing sleeps, and everything may go wrong at a known moment."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from cordwood.core import Core
from cordwood.done import DoneTable
from cordwood.errors import ServerUnavailable
from cordwood.keys import queue_keys
from cordwood.result import RECORD_FIELDS
from cordwood.settings import Settings
from cordwood.steps import Commands, Listen, Operation, Park, Pause, ScriptCall
from cordwood.waiting import Wait

KEYS: Final = queue_keys("q")
START_S: Final = 1000.0
EPOCH_MS: Final = 5_000_000
MOST_STEPS: Final = 20_000

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Event:
    """What happens `at_s` seconds after the start.

    `end` (the client is told), `end_untold`, `wipe` (the record is gone, untold), `begin` (a worker starts the job),
    `gap`, `down` and `up` (the server cannot be reached; its return makes a gap).
    """

    at_s: float
    kind: str
    job_id: str = ""


class Alarm:
    """Notes that it was set."""

    def __init__(self) -> None:
        self.rung = False

    def set(self) -> None:
        """Wake whoever waits."""
        self.rung = True


@dataclass
class World:
    """Jobs, a clock that only moves while somebody waits, and the events to come."""

    events: list[Event]
    expires_s: dict[str, float] = field(default_factory=dict)
    now_s: float = START_S
    states: dict[str, str] = field(default_factory=dict)
    ended_s: dict[str, float] = field(default_factory=dict)
    reachable: bool = True
    masks: list[int] = field(default_factory=list)
    watched: list[tuple[str, ...]] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    table: DoneTable = field(default_factory=DoneTable)

    def __post_init__(self) -> None:
        self.events = sorted(self.events, key=lambda event: event.at_s)
        self._happen()

    def wait(self, job_ids: Sequence[str], timeout_s: float | None) -> Wait:
        """Begin a wait for these jobs, which are queued unless an event said otherwise."""
        for job_id in job_ids:
            self.states.setdefault(job_id, "queued")
        context = Core(Settings(), "q", lambda: self.now_s).context
        return Wait(context, KEYS, job_ids, timeout_s=timeout_s, table=self.table, signal=Alarm())

    def run(self, operation: Operation[_T]) -> _T:
        """Perform an operation's steps to its end."""
        answer: Any = None
        error: Exception | None = None
        for _ in range(MOST_STEPS):
            try:
                step = operation.throw(error) if error else operation.send(answer)
            except StopIteration as end:
                value: _T = end.value
                return value
            answer, error = None, None
            self.steps.append(type(step).__name__)
            try:
                answer = self._perform(step)
            except ServerUnavailable as unavailable:
                error = unavailable
        raise AssertionError("the operation does not end")

    def outcomes(self, wait: Wait) -> Generator[tuple[str, float], None, None]:
        """Wait for everything; yield each job with the moment it was found."""
        with wait:
            while wait.pending:
                for job_id in self.run(wait.next_outcomes()):
                    yield job_id, self.now_s - START_S

    def _perform(self, step: object) -> Any:
        if isinstance(step, Park):
            return self._park(step)
        if isinstance(step, Pause):
            self._advance(step.pause_s, None)
            return None
        if not self.reachable:
            raise ServerUnavailable("down")
        if isinstance(step, Commands):
            assert step == Commands((("TIME",),), patient=False)
            return [(self._now_ms() // 1000, self._now_ms() % 1000 * 1000)]
        if isinstance(step, ScriptCall):
            return self._call(step)
        assert isinstance(step, Listen)
        return None

    def _now_ms(self) -> int:
        return EPOCH_MS + int((self.now_s - START_S) * 1000 + 1e-6)

    def _call(self, call: ScriptCall) -> list[Any]:
        job_ids = [KEYS.job_id(key) for key in call.keys[len(KEYS.fixed) :]]
        if call.name == "expire":
            return [self._expire(job_id) for job_id in job_ids]
        assert call.name == "watch"
        assert call.args[1:] == RECORD_FIELDS
        self.masks.append(int(call.args[0]))
        self.watched.append(tuple(job_ids))
        return [self._record(job_id) for job_id in job_ids]

    def _expire(self, job_id: str) -> bytes:
        if self._now_ms() < EPOCH_MS + round(self.expires_s.get(job_id, 1e6) * 1000):
            return b"early"
        if self.states[job_id] != "queued":
            return b"running"
        self._end(job_id, "expired")
        return b"expired"

    def _record(self, job_id: str) -> list[Any]:
        if self.states[job_id] == "wiped":
            return [-2, *[None] * len(RECORD_FIELDS)]
        values = {"st": self.states[job_id], "t2": EPOCH_MS + round(self.ended_s.get(job_id, 0) * 1000)}
        if job_id in self.expires_s:
            values["ex"] = EPOCH_MS + round(self.expires_s[job_id] * 1000)
        return [-1, *(str(values[name]).encode() if name in values else None for name in RECORD_FIELDS)]

    def _park(self, step: Park) -> bool:
        alarm = step.ticket.signal
        assert isinstance(alarm, Alarm)
        if not alarm.rung:
            self._advance(step.timeout_s, alarm)
        woken, alarm.rung = alarm.rung, False
        return woken

    def _advance(self, seconds: float, alarm: Alarm | None) -> None:
        """Let time pass, at most `seconds`, with what happens in it, until the alarm rings."""
        assert seconds >= 0
        end_s = self.now_s + seconds
        while self.events and START_S + self.events[0].at_s <= end_s:
            self.now_s = max(self.now_s, START_S + self.events[0].at_s)
            self._happen()
            if alarm is not None and alarm.rung:
                return
        self.now_s = end_s

    def _happen(self) -> None:
        while self.events and START_S + self.events[0].at_s <= self.now_s:
            event = self.events.pop(0)
            if event.kind in {"end", "end_untold"}:
                self._end(event.job_id, "cancelled")
                if event.kind == "end" and self.reachable:
                    self.table.tell([event.job_id])
            elif event.kind == "wipe":
                self.states[event.job_id] = "wiped"
            elif event.kind == "begin":
                if self.states.get(event.job_id, "queued") == "queued":
                    self.states[event.job_id] = "running"
            else:
                self.reachable = event.kind != "down"
                if event.kind != "down":
                    self.table.tell_gap()

    def _end(self, job_id: str, state: str) -> None:
        if self.states.get(job_id, "queued") in {"queued", "running"}:
            self.states[job_id] = state
            self.ended_s[job_id] = self.now_s - START_S
