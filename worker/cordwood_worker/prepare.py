"""Preparing: start an attempt at each job, decode its payload, tokenise its inputs, put its rows into the hopper."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from queue import Empty
from typing import TYPE_CHECKING, Final

from cordwood.errors import CodecError, CordwoodError
from cordwood.job import JobLimits, Payload, decode_payload
from cordwood.result import SPEC_MISMATCH
from cordwood_worker.backends import DeviceBroken
from cordwood_worker.batch import Row, Tokens
from cordwood_worker.broker.attempts import Attempts, Fault
from cordwood_worker.entry import Attempt, Entry
from cordwood_worker.execute import describe

if TYPE_CHECKING:
    from cordwood.options import EmbedOptions
    from cordwood_worker.backends import Backend
    from cordwood_worker.flow import Flow

INBOX_TIMEOUT_S: Final = 0.2
MAX_PER_START: Final = 128

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Ready:
    """A job whose inputs are tokens by now."""

    attempt: Attempt
    payload: Payload
    tokens: Sequence[Tokens]


@dataclass(frozen=True, slots=True)
class _Sorted:
    """What became of a group of attempts: rows to run, payloads nobody can read, and inputs at fault."""

    ready: list[_Ready] = field(default_factory=list)
    unreadable: list[Fault] = field(default_factory=list)
    failed: list[Fault] = field(default_factory=list)


class Preparer:
    """Turns entries into rows. What cannot become rows ends here, each with a reason of its own (invariant 5).

    Suspects are begun one by one, each after the one before has ended, and nothing else is prepared meanwhile: so a
    text that kills the process is marked alone when it does, and no attempt is counted for the others.
    """

    def __init__(
        self, attempts: Attempts, backend: Backend, flow: Flow, limits: JobLimits, clock: Callable[[], float]
    ) -> None:
        self._attempts = attempts
        self._backend = backend
        self._held = flow.held
        self._assembly = flow.assembly
        self._hopper = flow.hopper
        self._inbox = flow.inbox
        self._lengths = flow.lengths
        self._pace = flow.pace
        self._clock = clock
        self._limits = limits
        self._waiting: list[Entry] = []
        self._suspects: deque[Entry] = deque()
        self._begun: list[Attempt] = []
        self._alone: Entry | None = None
        self._is_noted = False

    def run_once(self) -> None:
        """Prepare the next entries, waiting for some up to `INBOX_TIMEOUT_S`.

        After an outage it goes on where it was: entries that were not started are started again, which the script
        allows, and attempts that were begun are prepared.
        """
        if not self._is_settled():
            return
        if not self._begun:
            self._begin()
        if self._begun:
            self._prepare(self._begun)
        elif self._is_noted:
            self._clear_note()

    def _is_settled(self) -> bool:
        """Whether the suspect that was prepared last has ended; waits a little for that."""
        return self._alone is None or self._held.wait_until_gone(self._alone, INBOX_TIMEOUT_S)

    def _begin(self) -> None:
        """Start the next suspect, or else the next entries that have come; what is started is prepared next."""
        if self._suspects:
            self._start([self._suspects[0]], alone=True)
            self._suspects.popleft()
            return
        if not self._waiting:
            try:
                self._waiting = self._inbox.get(timeout=INBOX_TIMEOUT_S)
            except Empty:
                return
        self._start(self._waiting[:MAX_PER_START], alone=False)
        self._waiting = self._waiting[MAX_PER_START:]

    def _start(self, entries: Sequence[Entry], *, alone: bool) -> None:
        answers = self._attempts.start(entries, stage="tokenise", spare_suspects=not alone)
        self._begun = [answer for answer in answers if isinstance(answer, Attempt)]
        self._is_noted = self._is_noted or bool(self._begun)
        refused = [answer for answer in answers if not isinstance(answer, Attempt)]
        self._suspects.extend(refusal.entry for refusal in refused if refusal.reason == "suspect")
        over = [refusal for refusal in refused if refusal.reason != "suspect"]
        self._held.begin(self._begun)
        self._held.remove(refusal.entry for refusal in over)
        for refusal in over:
            if refusal.reason not in {"lost", "stale"}:
                log.warning("entry %s:%s: %s", *refusal.entry.place, refusal.reason)

    def _prepare(self, group: Sequence[Attempt]) -> None:
        """Make rows of a group. They are passed on last, so that all before may be repeated after an outage."""
        found = _Sorted()
        self._tokenise(self._decode(group, found), found)
        if found.unreadable:
            self._attempts.bury(found.unreadable)
        if found.failed:
            self._attempts.fail(found.failed)
        self._held.remove(fault.attempt.entry for fault in (*found.unreadable, *found.failed))
        self._alone = group[0].entry if group[0].suspect else None
        self._begun = []
        self._hopper.put([row for job in found.ready for row in self._rows(job)])
        if found.ready:
            self._pace.prepare.note(self._clock() - found.ready[0].attempt.entry.arrived_s)
        for job in found.ready:
            self._lengths.note(sum(len(item.ids) for item in job.tokens), job.attempt.entry.hint)
        self._clear_note()

    def _clear_note(self) -> None:
        """Take back what `start` noted: these jobs are tokens by now. The device has begun with them meanwhile."""
        try:
            self._attempts.mark("tokenise", ())
        except CordwoodError as error:
            log.warning("jobs stay noted as being tokenised: %s", error)
        else:
            self._is_noted = False

    def _decode(self, group: Sequence[Attempt], found: _Sorted) -> list[_Ready]:
        """Read the payloads; the jobs returned have no tokens yet."""
        decoded: list[_Ready] = []
        task = self._backend.spec.task
        for attempt in group:
            try:
                payload = decode_payload(attempt.payload, self._limits)
            except CodecError as error:
                found.unreadable.append(Fault(attempt, "bad-payload", str(error)))
                continue
            if payload.task not in {None, task}:
                text = f"it asks for {payload.task}, the queue serves {task}"
                found.failed.append(Fault(attempt, SPEC_MISMATCH, text))
                continue
            decoded.append(_Ready(attempt, payload, ()))
        return decoded

    def _tokenise(self, jobs: Sequence[_Ready], found: _Sorted) -> None:
        """Tokenise together what is to be tokenised in the same way."""
        by_options: dict[EmbedOptions, list[_Ready]] = {}
        for job in jobs:
            by_options.setdefault(job.payload.options, []).append(job)
        for alike in by_options.values():
            self._tokenise_alike(alike, found)

    def _tokenise_alike(self, jobs: Sequence[_Ready], found: _Sorted) -> None:
        inputs = [item for job in jobs for item in job.payload.inputs]
        if not inputs:
            return
        try:
            tokens = self._backend.tokenise(inputs, jobs[0].payload.options)
        except DeviceBroken:
            raise
        except Exception as error:  # noqa: BLE001 - one input's fault, found by trying each job alone
            if len(jobs) > 1:
                for job in jobs:
                    self._tokenise_alike([job], found)
                return
            code = "invalid-input" if isinstance(error, ValueError) else type(error).__name__
            found.failed.append(Fault(jobs[0].attempt, code, describe(error)))
            return
        if len(tokens) != len(inputs):
            # Invariant 4: without a token list for each input nobody can say which belongs to whom.
            raise TypeError(f"the backend made {len(tokens)} token lists of {len(inputs)} inputs")
        position = 0
        for job in jobs:
            end = position + len(job.payload.inputs)
            found.ready.append(replace(job, tokens=tokens[position:end]))
            position = end

    def _rows(self, job: _Ready) -> list[Row]:
        """Expect a job's rows, and return them."""
        attempt = job.attempt
        earlier = self._assembly.expect(attempt, job.payload, job.tokens)
        if earlier is not None:
            # Its entry was lost with its stream, and the job was given another one: that attempt is over.
            self._hopper.discard({attempt.job_id})
            if earlier.entry.place != attempt.entry.place:
                self._held.remove([earlier.entry])
        return [
            Row(
                attempt.job_id,
                index,
                item,
                attempt.entry.arrived_s,
                suspect=attempt.suspect,
                lane=attempt.lane,
                deadline_s=attempt.deadline_s,
            )
            for index, item in enumerate(job.tokens)
        ]
