"""The scripts on a real server, with a clock that tests set, faults between any two commands, and a ledger."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from cordwood.calls import record_keys
from cordwood.connection import run_script, translated_errors
from cordwood.errors import ServerUnavailable
from cordwood.keys import ALL_LANES, LANES, Keys, queue_keys
from cordwood.result import FINAL_STATES
from cordwood.scripts import Script, assemble
from cordwood.steps import ScriptCall

# The server's own clock cannot be set, so the scripts' one source of time is replaced by a key.
CLOCK_KEY: Final = "test:clock"
CLOCK_PART: Final = (
    f"local now = tonumber(redis.call('GET', '{CLOCK_KEY}'))\nlocal now_text = string.format('%.0f', now)"
)
SET_CLOCK: Final = "#!lua flags=allow-oom\nreturn redis.call('SET', KEYS[1], ARGV[1])"
ARGS_PER_JOB: Final = {"finish": (0, 3), "fail": (0, 4), "dead": (1, 4), "retry": (1, 5), "release": (1, 4)}
START_ARGS: Final = (5, 4)
"""How many arguments `start` has before those of its first entry, and of each entry."""
SUBMIT_ARGS: Final = 11
"""How many arguments `submit` has for each job, after the first two."""
ENDS: Final = {"done", "failed", "dead", "cancelled", "expired"}


class Violation(AssertionError):
    """An invariant does not hold."""


class Fault(Enum):
    """What happens to one call on its way."""

    NONE = "none"
    REFUSED = "refused"
    LOST_REPLY = "lost reply"
    TWICE = "twice"


@dataclass
class World:
    """One queue, everything that was accepted, and how each job ended, as the server itself answered."""

    redis: Any
    queue: str
    replaced: Mapping[str, str] = field(default_factory=dict)
    accepted: dict[str, bytes] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    now_ms: int = 1_800_000_000_000
    latest_ms: int = 0
    history: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.keys: Keys = queue_keys(self.queue)
        self._scripts: dict[str, Script] = {}
        self.advance(0)

    def advance(self, delta_ms: int) -> None:
        """Move the scripts' clock, forwards or backwards."""
        self.now_ms += delta_ms
        self.latest_ms = max(self.latest_ms, self.now_ms)
        self.redis.eval(SET_CLOCK, 1, CLOCK_KEY, self.now_ms)

    def call(self, call: ScriptCall, fault: Fault = Fault.NONE) -> Any:
        """Run a script under a fault; the ledger sees every answer of the server, the caller perhaps none."""
        self.history.append(f"{self.now_ms} {call.name} {fault.value}")
        if fault is Fault.REFUSED:
            raise ServerUnavailable("refused")
        reply = self._execute(call)
        if fault is Fault.TWICE:
            reply = self._execute(call)
        if fault is Fault.LOST_REPLY:
            raise ServerUnavailable("the reply was lost")
        return reply

    def check(self) -> None:
        """Raise Violation unless every accepted job is in exactly one place, and ended jobs are as they ended."""
        entries = self._entries()
        delayed = {name.decode() for name in self.redis.zrange(self.keys.named("delayed"), 0, -1)}
        for job_id in self.accepted:
            self._check_job(job_id, entries, delayed)

    def check_quiet(self) -> None:
        """Raise Violation unless all jobs have ended and nothing of them is left but their records."""
        missing = self.accepted.keys() - self.ended.keys()
        if missing:
            raise Violation(f"{len(missing)} jobs never ended: {sorted(missing)[:3]}")
        left = self._entries()
        if left:
            raise Violation(f"entries of ended jobs are left: {left}")
        for name in ("delayed", "expiring", "suspects"):
            if self.redis.exists(self.keys.named(name)):
                raise Violation(f"{name} is not empty")

    def _execute(self, call: ScriptCall) -> Any:
        if call.name not in self._scripts:
            self._scripts[call.name] = assemble(call.name, {"clock": CLOCK_PART, **self.replaced})
        tokens = self._tokens_before(call)
        with translated_errors():
            reply = run_script(self.redis, call, source=self._scripts[call.name])
        self._note(call, reply, tokens)
        return reply

    def _tokens_before(self, call: ScriptCall) -> dict[str, bytes]:
        if call.name not in ARGS_PER_JOB:
            return {}
        jobs = _jobs_of(call)
        return {job_id: self.redis.hget(self.keys.job(job_id), "tk") or b"" for job_id, _ in jobs}

    def _note(self, call: ScriptCall, reply: Any, tokens: Mapping[str, bytes]) -> None:
        if call.name == "submit":
            self._note_submitted(call, reply)
        elif call.name in ARGS_PER_JOB:
            for (job_id, token), answer in zip(_jobs_of(call), reply, strict=True):
                changed = answer.decode() in {*ENDS, "delayed", "queued"}
                if changed and token and token.encode() != tokens[job_id]:
                    raise Violation(f"{call.name} of {job_id} by a token that is not the record's")
                self._note_end(job_id, answer.decode())
        elif call.name == "start":
            head, width = START_ARGS
            ids = [str(call.args[at + 2]) for at in range(head, len(call.args), width)]
            for name, answer in zip(ids, reply, strict=True):
                self._note_end(name, answer[0].decode())
        elif call.name in {"expire", "cancel"}:
            for argument, answer in zip(call.args, reply, strict=True):
                self._note_end(str(argument), answer.decode())

    def _note_submitted(self, call: ScriptCall, reply: Any) -> None:
        if isinstance(reply, bytes):
            return
        for position, answer in enumerate(reply):
            at = 2 + SUBMIT_ARGS * position
            job_id, payload = str(call.args[at]), call.args[at + 3]
            if answer == b"new":
                if job_id in self.accepted:
                    raise Violation(f"{job_id} was accepted twice")
                self.accepted[job_id] = payload if isinstance(payload, bytes) else b""

    def _note_end(self, job_id: str, answer: str) -> None:
        if answer not in ENDS:
            return
        if job_id in self.ended:
            raise Violation(f"{job_id} ended as {self.ended[job_id]} and again as {answer}")
        self.ended[job_id] = answer

    def _entries(self) -> dict[str, list[str]]:
        """Where each job stands, by job ID: `lane:entry ID`, or `fair:lane` if it waits for its tenant's turn."""
        places: dict[str, list[str]] = {}
        for lane in ALL_LANES:
            for entry_id, fields in self.redis.xrange(self.keys.lane(lane)):
                places.setdefault(fields[b"id"].decode(), []).append(f"{lane}:{entry_id.decode()}")
        for lane in LANES:
            for member in self.redis.zrange(self.keys.aside(lane), 0, -1):
                places.setdefault(member.decode(), []).append(f"fair:{lane}")
        return places

    def _check_job(self, job_id: str, entries: Mapping[str, list[str]], delayed: set[str]) -> None:
        values = self.redis.hmget(self.keys.job(job_id), ["st", "en", "rs"])
        state, entry, result = ((value or b"").decode("utf-8", "replace") for value in values)
        places = [*entries.get(job_id, []), *(["delayed"] if job_id in delayed else [])]
        wanted = {"queued": [entry], "running": [entry], "delayed": ["delayed"]}.get(state, [])
        if places != wanted:
            raise Violation(f"{job_id} is {state} and stands in {places}, not in {wanted}")
        if (self.ended.get(job_id) or state) != state or (state in FINAL_STATES) != (job_id in self.ended):
            raise Violation(f"{job_id} ended as {self.ended.get(job_id)} and its record says {state}")
        if state == "done" and json.loads(result) != job_id:
            raise Violation(f"{job_id} has the result of {result}")


def _jobs_of(call: ScriptCall) -> list[tuple[str, str]]:
    head, width = ARGS_PER_JOB[call.name]
    return [(str(call.args[at]), str(call.args[at + 1])) for at in range(head, len(call.args), width)]


def script_call(world: World, name: str, job_ids: list[str], args: list[str | int]) -> ScriptCall:
    """Build a call that takes no builder of the product's own."""
    return ScriptCall(name, record_keys(world.keys, job_ids), tuple(args))
