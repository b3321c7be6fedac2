"""Preparing in the face of outages and suspects, without a server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from queue import Queue
from typing import cast

import pytest

from cordwood.errors import ServerUnavailable
from cordwood.job import Job, JobLimits, encode_job
from cordwood_worker.assembly import Assembly
from cordwood_worker.broker.attempts import Attempts, Fault
from cordwood_worker.collect import Collector
from cordwood_worker.draft import BatchLimits
from cordwood_worker.entry import Attempt, Entry, Refusal
from cordwood_worker.flow import Flow
from cordwood_worker.held import Held, Room
from cordwood_worker.hopper import Hopper
from cordwood_worker.prepare import Preparer
from cordwood_worker.testing import FaultBackend

LIMITS = JobLimits(max_payload_bytes=10_000, max_inputs=4)
DEFAULTS = Job(inputs=(), max_attempts=2, result_ttl_s=100.0)


class ScriptedAttempts:
    """A server that knows the texts of some jobs, and does not answer the calls of the given numbers."""

    def __init__(self, texts: dict[str, str], *, suspects: Iterable[str] = (), unanswered: Iterable[int] = ()) -> None:
        self._texts = texts
        self._suspects = set(suspects)
        self._unanswered = set(unanswered)
        self.calls: list[tuple[str, tuple[str, ...]]] = []

    def _answer(self, name: str, job_ids: Iterable[str]) -> None:
        self.calls.append((name, tuple(job_ids)))
        if len(self.calls) in self._unanswered:
            raise ServerUnavailable("not now")

    def start(
        self, entries: Sequence[Entry], *, stage: str = "", spare_suspects: bool = False
    ) -> list[Attempt | Refusal]:
        """As the script."""
        self._answer(f"start {stage}", (entry.job_id for entry in entries))
        spared = self._suspects if spare_suspects else set()
        return [Refusal(each, "suspect") if each.job_id in spared else self._attempt(each) for each in entries]

    def mark(self, stage: str, job_ids: Iterable[str]) -> None:
        """As the script."""
        self._answer(f"mark {stage}", job_ids)

    def bury(self, jobs: Sequence[Fault]) -> list[str]:
        """As the script."""
        self._answer("bury", (job.attempt.job_id for job in jobs))
        return ["dead"] * len(jobs)

    def fail(self, jobs: Sequence[Fault]) -> list[str]:
        """As the script."""
        self._answer("fail", (job.attempt.job_id for job in jobs))
        return ["failed"] * len(jobs)

    def _attempt(self, entry: Entry) -> Attempt:
        text = self._texts[entry.job_id]
        payload = encode_job(Job(inputs=(text,)), LIMITS, DEFAULTS).payload if text else b"garbage"
        return Attempt(entry, "token", 1, suspect=entry.job_id in self._suspects, payload=payload)


class Bench:
    """A preparer whose entries have just come in."""

    def __init__(self, attempts: ScriptedAttempts, *job_ids: str) -> None:
        backend = FaultBackend()
        self.held = Held(Room(100, 10_000))
        self.collector = Collector(BatchLimits(1000, 100, 0.0))
        hopper, assembly = Hopper(self.collector, lambda: 0.0), Assembly(backend.spec, 1000)
        flow = Flow(held=self.held, hopper=hopper, assembly=assembly, inbox=Queue(), outbox=Queue())
        self.preparer = Preparer(cast("Attempts", attempts), backend, flow, LIMITS, lambda: 0.0)
        self.entries = {name: Entry("normal", f"{n}-0", name, 1, 0.0) for n, name in enumerate(job_ids, 1)}
        self.inbox = flow.inbox
        self.deliver(*self.entries.values())

    def deliver(self, *entries: Entry) -> None:
        """Let entries come in."""
        self.held.add(entries)
        self.inbox.put(list(entries))

    def taken(self) -> list[str]:
        """Take what has come out, as the job IDs of the next batch."""
        batch = self.collector.take(0.0)
        return [row.job_id for row in batch.rows] if batch else []


@pytest.mark.parametrize("unanswered", range(1, 4))
def test_an_outage_at_any_call_neither_loses_nor_doubles_a_job(unanswered: int) -> None:
    """Whatever call gets no answer, the good job comes out once and the bad ones are ended."""
    texts = {"good": "a text", "unreadable": "", "other": "another"}
    attempts = ScriptedAttempts(texts, unanswered=[unanswered])
    bench = Bench(attempts, *texts)
    for _ in range(2):
        try:
            bench.preparer.run_once()
        except ServerUnavailable:
            continue
    assert bench.taken() == ["good", "other"]
    assert bench.taken() == []
    assert ("bury", ("unreadable",)) in attempts.calls
    assert {entry.job_id for entry, _ in bench.held.everything()} == {"good", "other"}


def test_suspects_are_begun_one_by_one_each_after_the_end_of_the_last() -> None:
    """So a process that dies has counted an attempt for one of them only, and marked that one alone."""
    texts = {"a": "1", "b": "2", "c": "3", "d": "4"}
    attempts = ScriptedAttempts(texts, suspects=["b", "c"])
    bench = Bench(attempts, *texts)
    bench.preparer.run_once()
    assert bench.taken() == ["a", "d"]
    for suspect in ("b", "c"):
        bench.preparer.run_once()
        bench.preparer.run_once()
        assert bench.taken() == [suspect]
        assert bench.taken() == []
        bench.held.remove([bench.entries[suspect]])
    started = [ids for name, ids in attempts.calls if name == "start tokenise"]
    assert started == [("a", "b", "c", "d"), ("b",), ("c",)]


def test_a_note_that_could_not_be_taken_back_is_taken_back_later_and_keeps_no_job_from_the_device() -> None:
    """The call after the start gets no answer; the next idle round makes it again."""
    attempts = ScriptedAttempts({"job": "a text"}, unanswered=[2])
    bench = Bench(attempts, "job")
    bench.preparer.run_once()
    assert bench.taken() == ["job"]
    bench.preparer.run_once()
    bench.preparer.run_once()
    assert [name for name, _ in attempts.calls] == ["start tokenise", "mark tokenise", "mark tokenise"]
    assert bench.taken() == []


def test_a_job_that_comes_again_under_another_entry_leaves_nothing_of_the_first() -> None:
    """Its stream was deleted and its record repaired: it is run once, and the first entry is not held for ever."""
    bench = Bench(ScriptedAttempts({"job": "a text"}), "job")
    bench.preparer.run_once()
    again = Entry("again", "7-0", "job", 1, 0.0)
    bench.deliver(again)
    bench.preparer.run_once()
    assert bench.taken() == ["job"]
    assert bench.taken() == []
    assert [entry for entry, _ in bench.held.everything()] == [again]
