"""Waiting for jobs to end, as steps: without polling per job, and without missing an outcome that is there."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final, Self

from cordwood import calls
from cordwood.done import DoneTable, Signal, Ticket
from cordwood.errors import InvalidInput, ServerUnavailable, WaitTimeout
from cordwood.job import check_job_id
from cordwood.result import JobRecord, Outcome, read_outcome
from cordwood.steps import Commands, Listen, Operation, Park, Pause

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cordwood.keys import Keys
    from cordwood.operations import Context

    _Ended = tuple[int, str, Outcome]

_NOT_BEGUN: Final = frozenset({"queued", "delayed"})
RECHECK_S: Final = 5.0
"""A wait looks at all its jobs by itself after this long, whatever it hears: what tells it may be flushed."""
RECHECK_PER_JOB_S: Final = 0.005
"""A wait for very many jobs looks more seldom, so that this costs the server at most 200 jobs a second."""
LONGEST_RECHECK_S: Final = 60.0
FIRST_ANSWER_S: Final = 5.0
"""How long a wait tries to reach the server for the first time."""
FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0


class Wait:
    """One wait for some jobs: which of them are outstanding, and until when.

    Its ticket is open before it first looks. From then on it looks at the jobs that it was told of, and at all that
    are outstanding after an outage, after a gap in what it was told, once in a while, when one of them is overdue, and
    before it gives up.
    """

    def __init__(
        self,
        context: Context,
        keys: Keys,
        job_ids: Iterable[str],
        *,
        timeout_s: float | None,
        table: DoneTable,
        signal: Signal,
    ) -> None:
        if isinstance(job_ids, str):
            raise InvalidInput("job IDs must be in a list: a single one is waited for with `wait`")
        self.pending = dict.fromkeys(check_job_id(job_id) for job_id in job_ids)
        self._context = context
        self._keys = keys
        self._began_s = context.clock()
        self._deadline_s = inf if timeout_s is None else self._began_s + _checked_timeout(timeout_s)
        self._overdue_s = inf
        self._recheck_s = inf
        self._table = table
        self._ticket = Ticket(self.pending, signal)
        self._reached = False
        self._look_at_all = True
        self._seen_all_just_now = False
        self._pause_s = FIRST_PAUSE_S

    def __enter__(self) -> Self:
        self._table.open(self._ticket)
        return self

    def __exit__(self, *exc: object) -> None:
        self._table.close(self._ticket)

    def next_outcomes(self) -> Operation[dict[str, Outcome]]:
        """Wait until at least one more job has ended; the value is what has ended, by job ID, in the order of ending.

        Raises WaitTimeout when the time is over, and ServerUnavailable only if the server was never reached.
        """
        while self.pending:
            try:
                found = yield from self._look()
            except ServerUnavailable as error:
                yield from self._outlast_outage(error)
                continue
            for job_id in found:
                del self.pending[job_id]
            if found:
                return found
            yield from self._park()
        return {}

    def _look(self) -> Operation[dict[str, Outcome]]:
        told, gap = self._table.take(self._ticket)
        everything = self._look_at_all or gap
        # Cleared only by a look that succeeds: what a failed one had found is found again.
        self._look_at_all = True
        wanted = list(self.pending) if everything else [job_id for job_id in told if job_id in self.pending]
        # A last look, like the only one with a timeout of 0, asks nobody to tell it anything.
        goes_on = self._left_s() > 0
        if goes_on:
            yield Listen(self._keys)
        ended: list[_Ended] = []
        expiring: list[JobRecord] = []
        for chunk in calls.split(wanted, calls.WATCHED_PER_CALL):
            records = yield from self._watch(chunk, goes_on=goes_on)
            ended += _ended(chunk, records)
            expiring += [record for record in records if record and record.expires_ms and record.state in _NOT_BEGUN]
        if everything:
            ended += yield from self._end_overdue(expiring)
            ended.sort(key=_moment)
            silence_s = min(max(RECHECK_S, RECHECK_PER_JOB_S * len(wanted)), LONGEST_RECHECK_S)
            self._recheck_s = self._context.clock() + silence_s
        self._reached, self._look_at_all, self._pause_s = True, False, FIRST_PAUSE_S
        self._seen_all_just_now = everything
        return {job_id: outcome for _, job_id, outcome in ended}

    def _watch(self, job_ids: Sequence[str], *, goes_on: bool) -> Operation[list[JobRecord | None]]:
        mask = self._context.waiter_mask if goes_on else 0
        reply = yield calls.watch_call(self._keys, job_ids, waiter_mask=mask, patient=False)
        return calls.read_watched(job_ids, reply)

    def _end_overdue(self, expiring: Sequence[JobRecord]) -> Operation[list[_Ended]]:
        """End own jobs past their `expires`, so that this happens without any worker; note when the next one is due."""
        self._overdue_s = inf
        if not expiring:
            return []
        seconds, microseconds = (yield Commands((("TIME",),), patient=False))[0]
        now_ms = int(seconds) * 1000 + int(microseconds) // 1000
        overdue = [record.job_id for record in expiring if record.expires_ms <= now_ms]
        ended: list[_Ended] = []
        for chunk in calls.split(overdue, calls.WATCHED_PER_CALL):
            yield calls.sweep_call("expire", self._keys, chunk, patient=False)
            ended += _ended(chunk, (yield from self._watch(chunk, goes_on=False)))
        next_ms = min((record.expires_ms for record in expiring if record.expires_ms > now_ms), default=inf)
        self._overdue_s = self._context.clock() + (next_ms - now_ms) / 1000
        return ended

    def _park(self) -> Operation[None]:
        left_s = self._left_s()
        if left_s <= 0:
            if self._seen_all_just_now:
                raise self._timeout()
            self._look_at_all = True
            return
        due_s = max(0.0, min(self._overdue_s, self._recheck_s) - self._context.clock())
        woken = yield Park(self._ticket, min(left_s, due_s))
        self._seen_all_just_now = False
        self._look_at_all = self._look_at_all or not woken

    def _outlast_outage(self, error: ServerUnavailable) -> Operation[None]:
        left_s = self._left_s()
        if not self._reached:
            left_s = min(left_s, self._began_s + FIRST_ANSWER_S - self._context.clock())
        if left_s <= 0:
            raise self._timeout("; the server does not answer") if self._reached else error
        yield Pause(min(left_s, self._pause_s))
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)

    def _left_s(self) -> float:
        return self._deadline_s - self._context.clock()

    def _timeout(self, why: str = "") -> WaitTimeout:
        ids = tuple(self.pending)
        return WaitTimeout(f"{len(ids)} jobs have no outcome yet, the first is {ids[0]}{why}", job_ids=ids)


def _ended(job_ids: Sequence[str], records: Sequence[JobRecord | None]) -> list[_Ended]:
    """Return when and how jobs have ended, those that are not there first."""
    ended: list[_Ended] = []
    for job_id, record in zip(job_ids, records, strict=True):
        outcome = read_outcome(job_id, record)
        if outcome is not None:
            ended.append((record.finished_ms if record else 0, job_id, outcome))
    return ended


def _moment(ended: _Ended) -> int:
    return ended[0]


def _checked_timeout(timeout_s: object) -> float:
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not timeout_s >= 0:
        raise InvalidInput(f"timeout_s {timeout_s!r} is not a number of seconds of 0 or more, nor None")
    return timeout_s
