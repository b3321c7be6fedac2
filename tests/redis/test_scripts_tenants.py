"""Fair queueing among the tenants of a lane: who waits aside, whose turn it is, and what is left of it afterwards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cordwood.connection import connect
from tests.interleaving.world import CLOCK_KEY
from tests.redis.script_bench import Bench, Hand, done

pytestmark = pytest.mark.leaves_jobs

WINDOW = 4


@pytest.fixture
def bench(redis_url: str) -> Iterator[Bench]:
    """A queue on the real server whose window is of `WINDOW` jobs."""
    client = connect(redis_url)
    made = Bench(client)
    client.hset(made.keys.named("meta"), "window", WINDOW)
    yield made
    client.delete(CLOCK_KEY)
    client.close()


def names(tenant: str, count: int) -> list[str]:
    """Make job IDs that say whose they are, in order."""
    return [f"{tenant}-{number:03}" for number in range(count)]


def aside(bench: Bench, lane: str = "normal") -> list[str]:
    """Return the jobs that wait for their tenant's turn, the next one first."""
    members: Any = bench.redis.zrange(bench.keys.aside(lane), 0, -1)
    return [member.decode() for member in members]


def serve(hand: Hand, window: int = WINDOW) -> list[str]:
    """Do one round of a worker: let jobs in, run what is ready; return the jobs that ended, in order."""
    hand.reader.pump(window, idle=True)
    attempts = hand.begin()
    hand.attempts.finish([done(attempt) for attempt in attempts])
    return [attempt.job_id for attempt in attempts]


def serve_all(hand: Hand) -> list[str]:
    """Do rounds until nothing comes."""
    return list(chain.from_iterable(iter(lambda: serve(hand), [])))


def test_a_queue_without_tenants_has_no_trace_of_them(bench: Bench) -> None:
    """However deep the lane is, nobody waits aside and no key of fair queueing is made."""
    bench.submit(*names("x", 20))
    assert aside(bench) == []
    assert not bench.redis.exists(bench.keys.named("vt"))


def test_a_tenants_jobs_beyond_the_window_wait_aside(bench: Bench) -> None:
    """And a job without a tenant that comes while somebody waits has its turn as one tenant's."""
    bench.submit(*names("x", 2))
    bench.submit(*names("a", 10), tenant="a")
    bench.submit("y")
    assert bench.redis.xlen(bench.keys.lane("normal")) == WINDOW
    assert sorted(aside(bench)) == [*names("a", 10)[2:], "y"]
    assert bench.field("a-001", "en").startswith("normal:")
    assert bench.field("a-009", "en") == "fair:normal"


def test_one_tenants_flood_delays_another_by_no_more_than_the_window(bench: Bench) -> None:
    """Beyond what was let in already, they alternate."""
    hand = bench.hire("hand")
    flood, few = names("a", 200), names("b", 5)
    bench.submit(*flood, tenant="a")
    bench.submit(*few, tenant="b")
    order = serve_all(hand)
    assert sorted(order) == sorted(flood + few)
    assert [name for name in order if name in flood] == flood
    assert [name for name in order if name in few] == few
    assert max(map(order.index, few)) < WINDOW + 2 * len(few)


def test_shares_are_of_tokens(bench: Bench) -> None:
    """A tenant whose jobs are ten times as long gets a tenth as many jobs through."""
    hand = bench.hire("hand")
    bench.submit(*names("a", 60), tenant="a", inputs=("x" * 400,))
    bench.submit(*names("b", 60), tenant="b", inputs=("x" * 40,))
    first = Counter(name[0] for name in serve_all(hand)[WINDOW:48])
    assert first["b"] == pytest.approx(40, abs=2)


def test_who_was_idle_has_saved_nothing_up(bench: Bench) -> None:
    """A tenant that comes late starts at the present, not with all that it could have had."""
    hand = bench.hire("hand")
    bench.submit(*names("a", 100), tenant="a")
    early = [name for _ in range(10) for name in serve(hand)]
    bench.submit(*names("b", 60), tenant="b")
    later = serve_all(hand)
    assert Counter(name[0] for name in later[WINDOW : WINDOW + 40])["a"] == pytest.approx(20, abs=1)
    assert early == names("a", 100)[: len(early)]


def test_what_is_cancelled_or_expires_aside_was_not_used(bench: Bench) -> None:
    """Its tenant's next job does not pay for it."""
    hand = bench.hire("hand")
    bench.submit(*names("a", 50), tenant="a")
    bench.submit(*names("b", 50), tenant="b")
    for job_id in aside(bench):
        if job_id.startswith("a") and job_id > "a-009":
            bench.world.call(bench.cancelling(job_id))
    bench.submit("a-late", tenant="a")
    order = serve_all(hand)
    assert order.index("a-late") < 30
    assert aside(bench) == []


def test_expired_jobs_end_aside(bench: Bench) -> None:
    """The sweep finds them there as anywhere."""
    hand = bench.hire("hand")
    bench.submit(*names("a", 10), tenant="a", expires_s=1.0)
    bench.world.advance(2000)
    assert hand.upkeep.expire() == 10
    assert aside(bench) == []
    assert bench.redis.xlen(bench.keys.lane("normal")) == 0


def test_delayed_jobs_wait_for_their_turn_when_they_are_due(bench: Bench) -> None:
    """As if they were submitted then."""
    hand = bench.hire("hand")
    bench.submit(*names("a", 10), tenant="a", delay_s=1.0)
    bench.world.advance(1500)
    assert hand.upkeep.promote() == 10
    assert len(aside(bench)) == 10 - WINDOW
    assert sorted(serve_all(hand)) == names("a", 10)


def test_nothing_is_left_of_turns_when_nobody_waits(bench: Bench) -> None:
    """The next flood begins from nothing."""
    hand = bench.hire("hand")
    bench.submit(*names("a", 10), tenant="a")
    serve_all(hand)
    assert not bench.redis.exists(bench.keys.named("vt"))


def test_tenants_that_are_through_are_forgotten_while_others_wait(bench: Bench) -> None:
    """A queue that is never empty keeps no more tenants than about those that wait."""
    hand = bench.hire("hand")
    most = 0
    for number in range(300):
        bench.submit(f"job-{number}", f"other-{number}", tenant=f"tenant-{number}")
        bench.submit(*[f"flood-{number}-{one}" for one in range(4)], tenant="flood")
        serve(hand)
        most = max(most, bench.redis.hlen(bench.keys.named("vt")))
    assert len(aside(bench)) > 300
    assert most < 150


@pytest.mark.parametrize("mine", [["a-1", "a-2"], ["zz-last"]], ids=["a second job", "an ID that sorts last"])
def test_tenants_that_never_came_before_do_not_pass_for_ever(bench: Bench, mine: list[str]) -> None:
    """As many new ones come as jobs are served: a tenant that waits has its turn, and the others are forgotten."""
    hand = bench.hire("hand")
    bench.submit(*names("first", WINDOW), tenant="first")
    bench.submit(*mine, tenant="mine")
    served: list[str] = []
    for number in range(40):
        for one in range(WINDOW):
            bench.submit(f"b-{number:03}-{one}", tenant=f"new-{number}-{one}")
        served += serve(hand)
        assert bench.redis.hlen(bench.keys.named("vt")) < 60
    assert set(mine) <= set(served)


def test_nothing_is_kept_of_tenants_whose_jobs_aside_were_cancelled(bench: Bench) -> None:
    """Also where nothing is let in, as while a queue is paused; with the last one the tags go."""
    bench.submit(*names("a", WINDOW + 1), tenant="a")
    for number in range(20):
        bench.submit(f"b-{number}", tenant=f"tenant-{number}")
        bench.world.call(bench.cancelling(f"b-{number}"))
        assert bench.redis.hlen(bench.keys.named("vt")) <= 2
    bench.world.call(bench.cancelling(*aside(bench)))
    assert not bench.redis.exists(bench.keys.named("vt"))


def test_an_entry_that_was_cancelled_before_it_was_read_keeps_no_worker_idle(bench: Bench) -> None:
    """The one that others' full window had left for it."""
    busy, idle = bench.hire("busy"), bench.hire("idle")
    bench.submit(*names("a", WINDOW), tenant="a")
    busy.read()
    bench.submit(*names("b", 3), tenant="b")
    bench.world.call(bench.cancelling("b-000"))
    assert idle.read() == []
    assert idle.reader.pump(WINDOW, idle=True) == 1
    assert [entry.job_id for entry in idle.read()] == ["b-001"]
    assert busy.reader.pump(WINDOW) == 0, "the window is full for whoever holds something"


def test_a_worker_that_waits_gets_a_job_though_others_hold_the_window(bench: Bench) -> None:
    """A full window that is all in one worker's hands leaves nothing for another."""
    busy, idle = bench.hire("busy"), bench.hire("idle")
    bench.submit(*names("a", WINDOW), tenant="a")
    assert len(busy.read()) == WINDOW
    bench.submit(*names("b", 3), tenant="b")
    assert [entry.job_id for entry in idle.read()] == ["b-000"]
    assert idle.reader.tenants_wait
    assert idle.reader.pump(WINDOW, idle=True) == 1
    assert [entry.job_id for entry in idle.read()] == ["b-001"]


def test_members_that_no_producer_wrote_do_not_stand_in_the_way(bench: Bench) -> None:
    """They are removed, and so are those whose record is gone."""
    hand = bench.hire("hand")
    bench.submit(*names("a", 10), tenant="a")
    bench.redis.zadd(bench.keys.aside("normal"), {b"\xff bad": -2, b"no-record": -1})
    assert serve_all(hand) == names("a", 10)
    assert aside(bench) == []


def test_repair_gives_those_a_place_that_have_lost_theirs_aside(bench: Bench) -> None:
    """After somebody deleted the key."""
    hand = bench.hire("hand")
    bench.submit(*names("a", 10), tenant="a")
    bench.redis.delete(bench.keys.aside("normal"))
    assert set(hand.upkeep.repair().values()) == {"entry"}
    assert sorted(serve_all(hand)) == names("a", 10)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 50), st.booleans()), min_size=1, max_size=40))
def test_over_any_time_in_which_two_tenants_wait_they_get_as_much(
    bench: Bench, submissions: list[tuple[int, int, bool]]
) -> None:
    """Their tokens differ by no more than the longest job of each: the theorem of start-time fair queueing."""
    bench.redis.flushdb()
    bench.redis.hset(bench.keys.named("meta"), "window", 1)
    bench.world.accepted.clear()
    bench.world.ended.clear()
    bench.world.advance(0)
    hand = bench.hire("hand")
    left: Counter[str] = Counter()
    served: Counter[str] = Counter()
    lengths: dict[str, int] = {}

    def step() -> bool:
        both = left["t0"] > 1 and left["t1"] > 1
        ended = serve(hand, 1)
        for job_id in ended:
            left[job_id[:2]] -= 1
            served[job_id[:2]] += lengths[job_id] if both else 0
        if not both:
            served.clear()
        longest = max(lengths.values())
        assert abs(served["t0"] - served["t1"]) <= 2 * longest
        return bool(ended)

    for number, (tenant, length, works) in enumerate(submissions):
        job_id = f"t{tenant}-{number}"
        lengths[job_id] = length
        bench.submit(job_id, tenant=f"t{tenant}", inputs=("x" * (4 * length),))
        left[f"t{tenant}"] += 1
        if works:
            step()
    while step():
        pass
    assert left.total() == 0
