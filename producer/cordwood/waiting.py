"""Waiting for jobs to end, as steps: without polling per job, and without missing an outcome that is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from cordwood import calls
from cordwood.done import DoneTable, Signal, Ticket
from cordwood.errors import InvalidInput, ServerUnavailable, WaitTimeout
from cordwood.job import check_job_id
from cordwood.result import JobRecord, Outcome, read_outcome
from cordwood.steps import Listen, Operation, Park, Pause

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cordwood.keys import Keys
    from cordwood.operations import Context

RECHECK_S: Final = 5.0
"""A wait that hears nothing looks by itself after this long: what tells it is capped and may be flushed."""
FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0


class Wait:
    """One wait for some jobs: which of them are outstanding, and until when.

    Its ticket is open before it first looks. From then on it looks at the jobs that it was told of, and at all that
    are outstanding after an outage, after a gap in what it was told, after a silence, and before it gives up.
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
        self.pending = dict.fromkeys(check_job_id(job_id) for job_id in job_ids)
        self._context = context
        self._keys = keys
        self._deadline_s = None if timeout_s is None else context.clock() + _checked_timeout(timeout_s)
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
        """Wait until at least one more job has ended; the value is what has ended, by job ID.

        Raises WaitTimeout when the time is over, and ServerUnavailable only if the server was never reached.
        """
        while self.pending:
            try:
                found = yield from self._look()
            except ServerUnavailable:
                if not self._reached:
                    raise
                yield from self._outlast_outage()
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
        found: dict[str, Outcome] = {}
        yield Listen(self._keys)
        for chunk in calls.split(wanted, calls.WATCHED_PER_CALL):
            records = yield from self._watch(chunk)
            if everything and (yield from self._end_overdue(records)):
                records = yield from self._watch(chunk)
            outcomes = zip(chunk, map(read_outcome, chunk, records), strict=True)
            found.update((job_id, outcome) for job_id, outcome in outcomes if outcome is not None)
        self._reached, self._look_at_all, self._pause_s = True, False, FIRST_PAUSE_S
        self._seen_all_just_now = everything
        return found

    def _watch(self, job_ids: Sequence[str]) -> Operation[list[JobRecord | None]]:
        reply = yield calls.watch_call(self._keys, job_ids, waiter_mask=self._context.waiter_mask)
        return calls.read_watched(job_ids, reply)

    def _end_overdue(self, records: Sequence[JobRecord | None]) -> Operation[bool]:
        """End own jobs past their `expires`, so that this happens without any worker; the script knows the time."""
        waiting = [item.job_id for item in records if item and item.expires_ms and item.state in {"queued", "delayed"}]
        if waiting:
            answers = yield calls.sweep_call("expire", self._keys, waiting)
            return b"expired" in answers
        return False

    def _park(self) -> Operation[None]:
        left_s = self._left_s()
        if left_s <= 0:
            if self._seen_all_just_now:
                raise self._timeout()
            self._look_at_all = True
            return
        woken = yield Park(self._ticket, min(left_s, RECHECK_S))
        self._seen_all_just_now = False
        self._look_at_all = self._look_at_all or not woken

    def _outlast_outage(self) -> Operation[None]:
        left_s = self._left_s()
        if left_s <= 0:
            raise self._timeout("; the server does not answer")
        yield Pause(min(left_s, self._pause_s))
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        self._look_at_all = True

    def _left_s(self) -> float:
        return RECHECK_S if self._deadline_s is None else self._deadline_s - self._context.clock()

    def _timeout(self, why: str = "") -> WaitTimeout:
        ids = tuple(self.pending)
        return WaitTimeout(f"{len(ids)} jobs have no outcome yet, the first is {ids[0]}{why}", job_ids=ids)


def _checked_timeout(timeout_s: object) -> float:
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not timeout_s >= 0:
        raise InvalidInput(f"timeout_s {timeout_s!r} is not a number of seconds of 0 or more, nor None")
    return timeout_s
