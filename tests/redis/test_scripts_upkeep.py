"""Signs of life, taking over, sweeping and repair."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cordwood.connection import connect
from cordwood.keys import ALL_LANES, GROUP
from tests.interleaving.world import CLOCK_KEY
from tests.redis.script_bench import TTL_MS, Bench, Hand, done

pytestmark = pytest.mark.leaves_jobs


@pytest.fixture
def bench(redis_url: str) -> Iterator[Bench]:
    """A queue on the real server."""
    client = connect(redis_url)
    yield Bench(client)
    client.delete(CLOCK_KEY)
    client.close()


def pass_time(bench: Bench, hand: Hand, total_ms: int) -> None:
    """Let time pass while this worker goes on beating."""
    for _ in range(0, total_ms, TTL_MS // 2):
        bench.world.advance(TTL_MS // 2)
        hand.upkeep.beat(b"")


def test_a_worker_that_beats_keeps_what_it_holds(bench: Bench) -> None:
    """Its entries are nobody else's, for however long they are buffered."""
    first, second = bench.hire("first"), bench.hire("second")
    bench.submit("a")
    first.read()
    for _ in range(5):
        pass_time(bench, first, TTL_MS)
        second.upkeep.beat(b"")
        assert second.upkeep.reclaim(10).entries == ()


def test_entries_of_a_dead_worker_are_taken_over_in_bounded_calls(bench: Bench) -> None:
    """Each call takes at most what was asked for, until nothing is left."""
    first, second = bench.hire("first"), bench.hire("second")
    bench.submit("a", "b", "c")
    first.read()
    pass_time(bench, second, 2 * TTL_MS)
    taken = [len(second.upkeep.reclaim(2).entries) for _ in range(3)]
    assert taken == [2, 1, 0]


def test_a_worker_that_does_not_beat_itself_takes_over_nothing(bench: Bench) -> None:
    """It may have been frozen, and then everybody else's signs look old to it."""
    first, second = bench.hire("first"), bench.hire("second")
    bench.submit("a")
    first.read()
    bench.world.advance(2 * TTL_MS)
    assert second.upkeep.reclaim(10).entries == ()


@pytest.mark.parametrize("jump_ms", [3_600_000, -3_600_000])
def test_a_jump_of_the_clock_kills_nobody(bench: Bench, jump_ms: int) -> None:
    """The first beat after it gives everyone time to show that they live."""
    first, second = bench.hire("first"), bench.hire("second")
    bench.submit("a")
    first.read()
    bench.world.advance(jump_ms)
    assert second.upkeep.beat(b"").grace_ms == 1200
    assert second.upkeep.reclaim(10).entries == ()
    first.upkeep.beat(b"")
    pass_time(bench, second, 600)
    first.upkeep.beat(b"")
    pass_time(bench, second, 1000)
    assert second.upkeep.beat(b"").grace_ms == 0
    assert second.upkeep.reclaim(10).entries == ()


def test_an_entry_deleted_by_hand_is_reported_and_its_job_repaired(bench: Bench) -> None:
    """The pending list is clean afterwards, and the job is ready again."""
    first, second = bench.hire("first"), bench.hire("second")
    bench.submit("a", "b")
    gone, _ = first.read()
    bench.redis.xdel(bench.keys.lane(gone.lane), gone.entry_id)
    pass_time(bench, second, 2 * TTL_MS)
    taken = second.upkeep.reclaim(10)
    assert taken.deleted == (f"{gone.lane}:{gone.entry_id}",)
    assert [entry.job_id for entry in taken.entries] == ["b"]
    assert second.upkeep.repair() == {"a": "entry"}
    assert [entry.job_id for entry in second.read()] == ["a"]


def test_renew_tells_a_worker_of_entries_that_it_never_heard_of(bench: Bench) -> None:
    """A delivery whose reply was lost is pending for a worker that lives."""
    hand = bench.hire("w")
    bench.submit("a")
    hand.read()
    ((lane, entry_id),) = hand.upkeep.renew()
    (entry,) = hand.reader.fetch([(lane, entry_id)])
    assert entry.job_id == "a"
    assert [item.job_id for item in hand.begin([entry])] == ["a"]


def test_repair_brings_jobs_back_whose_streams_were_deleted(bench: Bench) -> None:
    """Queued, running and delayed ones; a dry run only reports; a repeat finds nothing."""
    hand = bench.hire("w")
    bench.submit("running")
    (attempt,) = hand.begin()
    bench.submit("queued")
    bench.submit("delayed", delay_s=5.0)
    bench.redis.delete(*map(bench.keys.lane, ALL_LANES), bench.keys.named("delayed"))
    hand.reader.create_groups()
    expected = {"running": "entry", "queued": "entry", "delayed": "delay"}
    assert hand.upkeep.repair(mend=False) == expected
    assert hand.upkeep.repair() == expected
    assert hand.upkeep.repair() == {}
    assert hand.attempts.finish([done(attempt)]) == ["done"]
    assert sorted(item.job_id for item in hand.begin()) == ["queued"]


def test_expire_ends_overdue_jobs_and_leaves_running_ones(bench: Bench) -> None:
    """A running one is looked at again later: its worker may yet die."""
    hand = bench.hire("w")
    bench.submit("running", expires_s=1.0)
    hand.begin()
    bench.submit("queued", expires_s=1.0)
    bench.submit("early", expires_s=9.0)
    bench.world.advance(1500)
    assert hand.upkeep.expire() == 1
    assert bench.states("running", "queued", "early") == ["running", "expired", "queued"]
    assert bench.redis.zscore(bench.keys.named("expiring"), "running") == bench.world.now_ms + 5000


def test_reap_removes_only_consumers_that_are_dead_and_hold_nothing(bench: Bench) -> None:
    """One that is dead but holds entries stays until they are taken over, or they would be lost."""
    holder, idle, alive = bench.hire("holder"), bench.hire("idle"), bench.hire("alive")
    bench.submit("a")
    holder.read()
    idle.read()
    holder.attempts.mark("run", ["a"])
    pass_time(bench, alive, 2 * TTL_MS)
    assert alive.upkeep.reap() == ["idle"]
    taken = alive.begin(list(alive.upkeep.reclaim(10).entries))
    assert alive.upkeep.reap() == ["holder"]
    assert alive.attempts.finish([done(item) for item in taken]) == ["done"]
    names = [item["name"] for item in bench.redis.xinfo_consumers(bench.keys.lane("normal"), GROUP)]
    assert names == [b"alive"]
    assert not bench.redis.exists(bench.keys.named("batch"))


def test_a_paused_queue_is_told_to_workers_with_their_beat(bench: Bench) -> None:
    """The flag lies in the queue's meta."""
    hand = bench.hire("w")
    assert not hand.upkeep.beat(b"").paused
    bench.redis.hset(bench.keys.named("meta"), "paused", 1)
    assert hand.upkeep.beat(b"").paused


@pytest.mark.parametrize("index", ["delayed", "expiring"])
def test_members_that_nobody_could_have_submitted_do_not_hold_up_the_sweep(bench: Bench, index: str) -> None:
    """A hundred of them at the head are removed, and the job behind them gets its turn."""
    hand = bench.hire("w")
    bench.submit("a", delay_s=1.0, expires_s=2.0)
    bench.redis.zadd(bench.keys.named(index), {b"\xff %d" % number: 0 for number in range(100)})
    bench.world.advance(1500 if index == "delayed" else 2500)
    sweep = hand.upkeep.promote if index == "delayed" else hand.upkeep.expire
    assert [sweep(), sweep()] == [0, 1]


def test_a_stream_that_is_deleted_twice_within_a_millisecond_costs_no_job(bench: Bench) -> None:
    """The new entry is not taken for the old one, which repair lets go of."""
    hand = bench.hire("hand")
    bench.submit("a", "b")
    for _ in range(3):
        bench.redis.delete(bench.keys.lane("normal"))
        hand.reader.create_groups()
        assert set(hand.upkeep.repair()) == {"a", "b"}
        bench.world.check()
    assert sorted(attempt.job_id for attempt in hand.begin()) == ["a", "b"]
