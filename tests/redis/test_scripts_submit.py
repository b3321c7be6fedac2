"""Accepting jobs, looking at them, cancelling them: the scripts that applications call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cordwood.calls import read_watched, submit_call, sweep_call, watch_call
from cordwood.connection import connect
from cordwood.errors import JobConflict, QueueFull, ServerFull
from tests.interleaving.world import CLOCK_KEY, Fault
from tests.redis.script_bench import Bench, done

pytestmark = pytest.mark.leaves_jobs


@pytest.fixture
def bench(redis_url: str) -> Iterator[Bench]:
    """A queue on the real server."""
    client = connect(redis_url)
    yield Bench(client)
    client.delete(CLOCK_KEY)
    client.close()


def test_a_job_has_one_entry_that_its_record_names(bench: Bench) -> None:
    """Record and entry point at each other from the first moment."""
    assert [item.state for item in bench.submit("a", lane="high")] == ["new"]
    ((entry_id, fields),) = bench.redis.xrange(bench.keys.lane("high"))
    assert bench.field("a", "en") == f"high:{entry_id.decode()}"
    assert fields == {b"id": b"a", b"n": b"1"}


def test_the_same_job_again_is_the_same_job(bench: Bench) -> None:
    """A repeat adds nothing and answers with the job's state."""
    bench.submit("a")
    assert [item.state for item in bench.submit("a", "a")] == ["queued", "queued"]
    assert bench.redis.xlen(bench.keys.lane("normal")) == 1


def test_the_same_id_twice_in_one_call_is_one_job(bench: Bench) -> None:
    """Also before the record exists."""
    assert [item.state for item in bench.submit("a", "a")] == ["new", "queued"]
    assert bench.redis.xlen(bench.keys.lane("normal")) == 1


def test_other_contents_under_the_same_id_are_a_conflict(bench: Bench) -> None:
    """In another call, and in the same one."""
    bench.submit("a")
    (answer,) = bench.submit("a", inputs=("other",))
    assert isinstance(answer.error, JobConflict)
    jobs = [bench.encoded("b"), bench.encoded("b", inputs=("other",))]
    call = submit_call(bench.keys, jobs, max_depth=100, waiter_mask=1)
    assert bench.world.call(call) == [b"new", b"conflict"]


def test_a_call_whose_reply_is_lost_and_repeated_adds_one_entry(bench: Bench) -> None:
    """The client library repeats calls by itself."""
    call = submit_call(bench.keys, [bench.encoded("a")], max_depth=100, waiter_mask=1)
    assert bench.world.call(call, Fault.TWICE) == [b"dup:queued"]
    assert bench.redis.xlen(bench.keys.lane("normal")) == 1


def test_over_the_depth_limit_nothing_of_a_call_is_written(bench: Bench) -> None:
    """Delayed jobs count as well; a call that fits exactly is accepted."""
    bench.submit("a", delay_s=5)
    refused = bench.submit("b", "c", "d", max_depth=3)
    assert all(isinstance(item.error, QueueFull) for item in refused)
    assert bench.states("b", "c", "d") == ["", "", ""]
    assert all(item.accepted for item in bench.submit("b", "c", max_depth=3))


def test_an_operators_depth_limit_wins_over_the_clients(bench: Bench) -> None:
    """`max_depth` in the queue's meta is for all."""
    bench.redis.hset(bench.keys.named("meta"), "max_depth", 1)
    bench.submit("a")
    assert isinstance(bench.submit("b")[0].error, QueueFull)


def test_near_the_memory_limit_submit_refuses(bench: Bench) -> None:
    """Above 85 % of maxmemory, so that there is room left to drain."""
    used = bench.redis.info("memory")["used_memory"]
    bench.redis.config_set("maxmemory", int(used / 0.9))
    try:
        assert isinstance(bench.submit("a")[0].error, ServerFull)
    finally:
        bench.redis.config_set("maxmemory", 0)
    assert bench.states("a") == [""]


def test_a_key_of_another_type_is_refused_and_left_alone(bench: Bench) -> None:
    """Its neighbours in the call are accepted."""
    bench.redis.set(bench.keys.job("a"), "mine", ex=60)
    assert [item.accepted for item in bench.submit("a", "b")] == [False, True]
    assert bench.redis.get(bench.keys.job("a")) == b"mine"


def test_watch_sets_the_waiters_bit_only_while_the_job_lives(bench: Bench) -> None:
    """And returns the outcome once there is one."""
    hand = bench.hire("w")
    bench.submit("a", mask=1)
    watch: Any = watch_call(bench.keys, ["a", "missing"], waiter_mask=4)
    records = read_watched(["a", "missing"], bench.world.call(watch))
    assert records[0] is not None
    assert (records[0].state, records[1], bench.field("a", "wm")) == ("queued", None, "5")
    hand.attempts.finish([done(item) for item in hand.begin()])
    (ended, _) = read_watched(["a", "missing"], bench.world.call(watch))
    assert ended is not None
    assert (ended.state, ended.result) == ("done", b"result")


def test_everyone_who_waits_is_told_once_on_a_shard_of_their_own(bench: Bench) -> None:
    """One entry per call and shard, numbered without gaps."""
    hand = bench.hire("w")
    bench.submit("a", mask=1)
    bench.submit("a", "b", mask=128)
    hand.attempts.finish([done(item) for item in hand.begin()])
    (first,) = bench.redis.xrange(bench.keys.done(0))
    (last,) = bench.redis.xrange(bench.keys.done(7))
    assert first[1] == {b"n": b"1", b"ids": b"a"}
    assert last[1] == {b"n": b"1", b"ids": b"a b"}


@pytest.mark.parametrize("place", ["queued", "delayed", "running"])
def test_cancel_is_final_at_once_wherever_the_job_is(bench: Bench, place: str) -> None:
    """No entry, no delay and no expiry is left, and the worker that runs it changes nothing any more."""
    hand = bench.hire("w")
    bench.submit("a", delay_s=5.0 if place == "delayed" else 0.0, expires_s=50.0)
    begun = hand.begin() if place == "running" else []
    call = sweep_call("cancel", bench.keys, ["a", "missing"])
    assert bench.world.call(call) == [b"cancelled", b"missing"]
    assert bench.world.call(call) == [b"already:cancelled", b"missing"]
    assert hand.attempts.finish([done(item) for item in begun]) == ["already:cancelled"] * len(begun)
    assert bench.redis.xlen(bench.keys.lane("normal")) == 0
    assert not bench.redis.exists(bench.keys.named("delayed"), bench.keys.named("expiring"))
    assert bench.field("a", "pl") == ""


def test_an_entry_never_has_the_id_of_one_that_its_deleted_stream_had(bench: Bench) -> None:
    """Not even within the same millisecond: whoever still holds the old one would delete the new one."""
    stream, sequences = bench.keys.lane("normal"), []
    for job_id in ("a", "b", "c", "d"):
        bench.submit(job_id)
        sequences.append(bench.redis.xrange(stream)[0][0].split(b"-")[1])
        bench.redis.delete(stream)
    assert len(set(sequences)) == 4
    assert b"0" not in sequences
    bench.submit("e")
    bench.redis.xdel(stream, bench.redis.xrange(stream)[0][0])
    bench.submit("f")
    assert bench.redis.xlen(stream) == 1
    bench.redis.flushall()
