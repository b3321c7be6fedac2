"""Entries and records that no producer wrote: each ends with a reason, and the worker goes on."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgpack

from cordwood.errors import JobDead, JobFailed, SpecMismatch
from cordwood.job import Job
from tests.fleet import Fleet
from tests.outcomes import check_all_done, check_nothing_left, submit
from tests.waiting import wait_until

MANY = 1_000_000
NUMBERS = ("at", "ma", "to", "ex", "wm", "rt", "hi", "t0")
"""The fields of a record that hold a number."""


def dead_letters(fleet: Fleet) -> Counter[str]:
    """Count the dead letters by their code."""
    letters: Any = fleet.redis.xrange(fleet.keys.named("dead"))
    return Counter(fields[b"code"].decode() for _, fields in letters)


def test_hostile_entries_end_in_the_dead_letters_and_cost_no_other_job(fleet: Fleet) -> None:
    """Among 40 real jobs: no ID, no text, too long, empty, not printable, not there, another job's, one that ended."""
    ended = submit(fleet, ["ended before"])
    fleet.start()
    check_all_done(fleet, ended)
    jobs = submit(fleet, [f"text {number}" for number in range(20)])
    other = next(iter(jobs))
    for fields in (
        {"x": 1},
        {"id": b"\xff\xfe\x00"},
        {"id": b"x" * MANY},
        {"id": ""},
        {"id": "two words"},
        {"id": "nobody", "n": "9" * MANY},
        {"id": "nobody", "n": "-3"},
        {"id": other, "n": "nan"},
        {"id": next(iter(ended)), "n": 1},
    ):
        fleet.redis.xadd(fleet.keys.lane("normal"), fields)  # type: ignore[arg-type]
    jobs |= submit(fleet, [f"later {number}" for number in range(20)])
    check_all_done(fleet, jobs | ended)
    check_nothing_left(fleet)
    assert dead_letters(fleet) == {"bad-entry": 5, "no-record": 2}
    assert fleet.stat("done") == 41
    assert len(fleet.living) == 1
    length: Any = fleet.redis.memory_usage(fleet.keys.named("dead"))
    assert length < MANY


HOSTILE_PAYLOADS = {
    "garbage": b"\xc1 garbage",
    "inputs": msgpack.packb({"v": 1, "i": []}),
    "numbers": msgpack.packb({"v": 1, "i": [1, 2]}),
    "surrogate": b"\x82\xa1v\x01\xa1i\x91\xa3\xed\xa0\x80",
    "ext": msgpack.packb({"v": 1, "i": msgpack.ExtType(5, b"x")}),
    "nested": b"\x91" * 100_000 + b"\x90",
    "maps": b"\xdc\xff\xff" + b"\x80" * 65_535,
    "sequence": msgpack.packb([1, 2, 3]),
    "huge": msgpack.packb({"v": 1, "i": ["x" * 3 * MANY]}),
    "version": msgpack.packb({"v": 99, "i": ["text"]}),
}


def test_hostile_records_end_with_a_reason_and_cost_no_other_job(fleet: Fleet) -> None:
    """Among real jobs: keys of another type, an unknown state, no payload, payloads that nobody can read."""
    good = submit(fleet, [f"text {number}" for number in range(10)])
    named = ("string", "list", "state", "stateless", "no-payload", "empty-payload", *HOSTILE_PAYLOADS)
    fleet.client.submit_many([Job(inputs=("a victim",), id=name) for name in named])
    key, server = fleet.keys.job, fleet.redis
    server.set(key("string"), "no record")
    server.delete(key("list"))
    server.rpush(key("list"), "no record")
    server.hset(key("state"), "st", "weird")
    server.hdel(key("stateless"), "st")
    server.hdel(key("no-payload"), "pl")
    server.hset(key("empty-payload"), "pl", "")
    for name, payload in HOSTILE_PAYLOADS.items():
        server.hset(key(name), "pl", payload)
    good |= submit(fleet, [f"later {number}" for number in range(10)])
    fleet.start()
    check_all_done(fleet, good)
    outcomes = fleet.client.wait_many(["no-payload", "empty-payload", *HOSTILE_PAYLOADS], timeout_s=20)
    assert all(isinstance(outcome, JobDead) for outcome in outcomes)
    codes = Counter(outcome.code for outcome in outcomes if isinstance(outcome, JobDead))
    assert codes == {"no-payload": 2, "bad-payload": len(HOSTILE_PAYLOADS)}
    wait_until(lambda: dead_letters(fleet)["bad-record"] == 4, description="what is no record is a dead letter")
    assert len(fleet.living) == 1
    # What is no record was not Cordwood's to delete.
    assert server.delete(*map(key, ("string", "list", "state", "stateless"))) == 4
    check_nothing_left(fleet)


def test_numbers_in_a_record_that_are_none_cost_no_other_job(fleet: Fleet) -> None:
    """Whatever its counters and times say, a job ends, and the script that ends it ends its batch-mates too."""
    good = submit(fleet, [f"text {number}" for number in range(10)])
    values = ("inf", "nan", "1e300", "-5", "9" * 400, "0x7fffffff", "words", "")
    named = {f"{name}:{value[:9]}": (name, value) for name in NUMBERS for value in values}
    fleet.client.submit_many([Job(inputs=("odd",), id=job_id) for job_id in named])
    for job_id, (name, value) in named.items():
        fleet.redis.hset(fleet.keys.job(job_id), name, value)
    good |= submit(fleet, [f"later {number}" for number in range(10)])
    fleet.start()
    check_all_done(fleet, good)
    wait_until(lambda: all(fleet.client.get(job_id).is_final for job_id in named), description="all have ended")
    assert "refused" not in fleet.workers[0].log
    # Some say of themselves that they are to be kept for good.
    fleet.redis.delete(*map(fleet.keys.job, named))
    check_nothing_left(fleet)


def test_jobs_that_the_queue_does_not_serve_fail_with_a_reason(fleet: Fleet) -> None:
    """Another task, a pair where a text is wanted."""
    task = fleet.client.submit("a text", task="rerank")
    pair = fleet.client.submit(("a", "pair"))
    fleet.start()
    outcomes = fleet.client.wait_many([task, pair], timeout_s=20)
    assert isinstance(outcomes[0], SpecMismatch)
    assert "rerank" in str(outcomes[0])
    assert isinstance(outcomes[1], JobFailed)
    assert outcomes[1].code == "invalid-input"
    check_nothing_left(fleet)
