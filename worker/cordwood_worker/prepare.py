"""Preparing: start an attempt at each job, decode its payload, tokenise its inputs, put its rows into the hopper."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from queue import Empty
from typing import TYPE_CHECKING, Final

from cordwood.errors import CodecError
from cordwood.job import JobLimits, Payload, decode_payload
from cordwood.result import SPEC_MISMATCH
from cordwood_worker.batch import Row, Tokens
from cordwood_worker.broker.attempts import Attempts, Fault
from cordwood_worker.entry import Attempt, Entry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cordwood_worker.backends import Backend
    from cordwood_worker.flow import Flow

INBOX_TIMEOUT_S: Final = 0.2
MAX_PER_START: Final = 128

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Decoded:
    attempt: Attempt
    payload: Payload


class Preparer:
    """Turns entries into rows. What cannot become rows ends here, each with a reason of its own (invariant 5)."""

    def __init__(self, attempts: Attempts, backend: Backend, flow: Flow, limits: JobLimits) -> None:
        self._attempts = attempts
        self._backend = backend
        self._held = flow.held
        self._assembly = flow.assembly
        self._hopper = flow.hopper
        self._inbox = flow.inbox
        self._limits = limits
        self._waiting: list[Entry] = []

    def run_once(self) -> None:
        """Prepare the entries that have come, waiting for some up to `INBOX_TIMEOUT_S`.

        Entries are kept until their start is known to the server: after an outage they are started again, which the
        script allows.
        """
        if not self._waiting:
            try:
                self._waiting = self._inbox.get(timeout=INBOX_TIMEOUT_S)
            except Empty:
                return
        chunk = self._waiting[:MAX_PER_START]
        started = self._start(chunk)
        self._waiting = self._waiting[MAX_PER_START:]
        self._prepare(started)

    def _start(self, entries: Sequence[Entry]) -> list[Attempt]:
        answers = self._attempts.start(entries)
        started = [answer for answer in answers if isinstance(answer, Attempt)]
        refused = [answer for answer in answers if not isinstance(answer, Attempt)]
        self._held.begin(started)
        self._held.remove(refusal.entry for refusal in refused)
        for refusal in refused:
            if refusal.reason not in {"lost", "stale"}:
                log.warning("entry %s:%s: %s", *refusal.entry.place, refusal.reason)
        return started

    def _prepare(self, started: Sequence[Attempt]) -> None:
        """Tokenise suspects one by one: a text that kills the process must be found alone."""
        together = [attempt for attempt in started if not attempt.suspect]
        for group in [together, *([attempt] for attempt in started if attempt.suspect)]:
            if group:
                self._attempts.mark("tokenise", [attempt.job_id for attempt in group])
                self._tokenise(self._decode(group))
        if started:
            self._attempts.mark("tokenise", ())

    def _decode(self, group: Sequence[Attempt]) -> list[_Decoded]:
        decoded: list[_Decoded] = []
        unreadable: list[Fault] = []
        misfits: list[Fault] = []
        for attempt in group:
            try:
                payload = decode_payload(attempt.payload, self._limits)
            except CodecError as error:
                unreadable.append(Fault(attempt, "bad-payload", str(error)))
                continue
            task = self._backend.spec.task
            if payload.task not in {None, task}:
                misfits.append(Fault(attempt, SPEC_MISMATCH, f"it asks for {payload.task}, the queue serves {task}"))
                continue
            decoded.append(_Decoded(attempt, payload))
        if unreadable:
            self._attempts.bury(unreadable)
        self._end_failed(misfits)
        self._held.remove(fault.attempt.entry for fault in unreadable)
        return decoded

    def _tokenise(self, jobs: Sequence[_Decoded]) -> None:
        inputs = [item for job in jobs for item in job.payload.inputs]
        if not inputs:
            return
        try:
            tokens = self._backend.tokenise(inputs)
        except Exception as error:  # noqa: BLE001 - one input's fault, found by trying each job alone
            if len(jobs) > 1:
                for job in jobs:
                    self._tokenise([job])
                return
            code = "invalid-input" if isinstance(error, ValueError) else type(error).__name__
            self._end_failed([Fault(jobs[0].attempt, code, str(error))])
            return
        position = 0
        for job in jobs:
            end = position + len(job.payload.inputs)
            self._pass_on(job, tokens[position:end])
            position = end

    def _pass_on(self, job: _Decoded, tokens: Sequence[Tokens]) -> None:
        attempt = job.attempt
        self._assembly.expect(attempt, job.payload.metadata, tokens)
        rows = [
            Row(attempt.job_id, index, item, attempt.entry.arrived_s, attempt.suspect)
            for index, item in enumerate(tokens)
        ]
        self._hopper.put(rows)

    def _end_failed(self, faults: Sequence[Fault]) -> None:
        if faults:
            self._attempts.fail(faults)
            self._held.remove(fault.attempt.entry for fault in faults)
