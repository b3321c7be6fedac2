from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from cordwood import operations
from cordwood.errors import (
    CordwoodError,
    InvalidInput,
    JobConflict,
    PayloadTooLarge,
    QueueFull,
    ServerFull,
    ServerUnavailable,
)
from cordwood.job import Job
from cordwood.keys import QUEUES, done_shard, queue_keys
from cordwood.operations import Context
from cordwood.result import RECORD_FIELDS
from cordwood.scripts import MAX_JOBS_PER_CALL
from cordwood.settings import Settings
from cordwood.steps import Commands, Operation, ScriptCall, Step

_T = TypeVar("_T")

KEYS = queue_keys("q")
CONTEXT = Context.of(Settings(max_payload_bytes=1000, max_depth=77), "client-1", lambda: 0.0)


def performed(operation: Operation[_T], answer: Callable[[Any], Any]) -> tuple[_T, list[Step]]:
    """Perform every step by `answer`; an exception that it returns is raised in the operation."""
    steps: list[Step] = []
    reply: Any = None
    while True:
        try:
            raised = isinstance(reply, CordwoodError)
            step = operation.throw(reply) if raised else operation.send(reply)
        except StopIteration as end:
            value: _T = end.value
            return value, steps
        steps.append(step)
        reply = answer(step)


def all_new(step: Any) -> Any:
    """Accept everything."""
    return [b"new"] * (len(step.keys) - len(KEYS.fixed)) if isinstance(step, ScriptCall) else [1]


def jobs(count: int) -> list[Job]:
    """Jobs with the IDs j0, j1…"""
    return [Job(inputs=("x",), id=f"j{number}") for number in range(count)]


def refused(count: int, answer: Callable[[Any], Any]) -> CordwoodError:
    """Submit and return the error."""
    with pytest.raises(CordwoodError) as caught:
        performed(operations.submit(CONTEXT, KEYS, jobs(count), announce=True, numbered=True), answer)
    return caught.value


def test_the_context_takes_its_limits_from_the_settings() -> None:
    """And its shard from its name, as the bit that records keep."""
    assert (CONTEXT.limits.max_payload_bytes, CONTEXT.max_depth) == (1000, 77)
    assert CONTEXT.waiter_mask == 1 << done_shard("client-1")


def test_a_submit_names_the_queue_first_and_then_sends_its_jobs_in_order() -> None:
    """One call for every 512 jobs."""
    count = 2 * MAX_JOBS_PER_CALL + 1
    operation = operations.submit(CONTEXT, KEYS, jobs(count), announce=True, numbered=True)
    job_ids, steps = performed(operation, all_new)
    assert job_ids == [f"j{number}" for number in range(count)]
    assert steps[0] == Commands((("SADD", QUEUES, "q"),))
    sent = [step for step in steps[1:] if isinstance(step, ScriptCall)]
    assert [len(step.keys) - len(KEYS.fixed) for step in sent] == [MAX_JOBS_PER_CALL, MAX_JOBS_PER_CALL, 1]
    assert {step.args[:2] for step in sent} == {(77, CONTEXT.waiter_mask)}
    _, again = performed(operations.submit(CONTEXT, KEYS, jobs(1), announce=False, numbered=True), all_new)
    assert [type(step) for step in again] == [ScriptCall]
    assert performed(operations.submit(CONTEXT, KEYS, [], announce=True, numbered=True), all_new) == ([], [])


def test_nothing_is_sent_before_every_job_is_checked() -> None:
    """The last one counts as much as the first."""
    for bad, kind in ((Job(inputs=("x" * 1001,)), PayloadTooLarge), (Job(inputs=("\ud800",)), InvalidInput)):
        sent: list[Step] = []
        for numbered, index in ((True, 600), (False, None)):
            operation = operations.submit(CONTEXT, KEYS, [*jobs(600), bad], announce=True, numbered=numbered)
            with pytest.raises(kind) as caught:
                performed(operation, sent.append)
            assert getattr(caught.value, "index", "none") == index
        assert sent == []


def test_a_conflict_concerns_its_own_job_alone() -> None:
    """The rest of the call is sent, and the error says what became of every job."""

    def answer(step: Any) -> Any:
        replies = all_new(step)
        if isinstance(step, ScriptCall) and step.args[2] == "j0":
            replies[1], replies[2] = b"conflict", b"dup:done"
        return replies

    error = refused(MAX_JOBS_PER_CALL + 2, answer)
    assert isinstance(error, JobConflict)
    assert error.job_id == "j1"
    assert [item.accepted for item in error.submissions] == [True, False, *[True] * MAX_JOBS_PER_CALL]
    assert [item.state for item in error.submissions[:3]] == ["new", "", "done"]


@pytest.mark.parametrize(
    ("answered", "kind"),
    [(b"full:depth", QueueFull), (b"full:memory", ServerFull), (ServerUnavailable("gone"), ServerUnavailable)],
)
def test_what_concerns_the_queue_or_the_server_stops_the_call(answered: object, kind: type[CordwoodError]) -> None:
    """What was sent before stands, what was not sent is not tried, and every job is accounted for."""
    calls: list[str] = []

    def answer(step: Any) -> Any:
        if isinstance(step, ScriptCall):
            calls.append(str(step.args[2]))
            return all_new(step) if len(calls) == 1 else answered
        return [1]

    error = refused(3 * MAX_JOBS_PER_CALL, answer)
    assert type(error) is kind
    assert calls == ["j0", f"j{MAX_JOBS_PER_CALL}"]
    assert [item.job_id for item in error.submissions] == [f"j{number}" for number in range(3 * MAX_JOBS_PER_CALL)]
    assert [item.accepted for item in error.submissions] == [True] * MAX_JOBS_PER_CALL + [False] * 2 * MAX_JOBS_PER_CALL


def test_a_failure_before_the_first_call_accounts_for_every_job_too() -> None:
    """Otherwise the IDs that were chosen for the jobs would be lost, and with them a safe repetition."""
    error = refused(3, lambda step: ServerFull("no room") if isinstance(step, Commands) else all_new(step))
    assert isinstance(error, ServerFull)
    assert [(item.job_id, item.accepted) for item in error.submissions] == [(f"j{n}", False) for n in range(3)]


def test_looking_reads_records_in_order_and_asks_for_nothing() -> None:
    """In calls of bounded size, with a mask of 0."""
    job_ids = [f"j{number}" for number in range(300)]

    def answer(step: Any) -> Any:
        assert step.args == (0, *RECORD_FIELDS)
        ids = [KEYS.job_id(key) for key in step.keys[len(KEYS.fixed) :]]
        assert len(ids) <= 128
        queued = [-1, b"queued", *[None] * (len(RECORD_FIELDS) - 1)]
        return [[-2] if job_id.endswith("7") else queued for job_id in ids]

    records, _ = performed(operations.look(KEYS, job_ids), answer)
    assert [record.job_id if record else None for record in records] == [
        None if job_id.endswith("7") else job_id for job_id in job_ids
    ]
    with pytest.raises(InvalidInput):
        performed(operations.look(KEYS, ["fine", "two words"]), answer)


def test_cancelling_answers_with_the_state_of_each_job() -> None:
    """Whether it was this call that ended it or not."""
    replies = [b"cancelled", b"already:done", b"missing", b"bad"]
    states, steps = performed(operations.cancel(KEYS, ["a", "b", "c", "d"]), lambda _: replies)
    assert states == ["cancelled", "done", "missing", "bad"]
    assert [step.name for step in steps if isinstance(step, ScriptCall)] == ["cancel"]
