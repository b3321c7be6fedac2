"""Beginning and ending attempts: the scripts under a token."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import pytest

from cordwood.connection import connect
from cordwood.errors import ServerUnavailable
from cordwood_worker.entry import Attempt, Entry, Refusal
from tests.interleaving.world import CLOCK_KEY, Fault
from tests.redis.script_bench import TTL_MS, Bench, Hand, done, fault

pytestmark = pytest.mark.leaves_jobs


@pytest.fixture
def bench(redis_url: str) -> Iterator[Bench]:
    """A queue on the real server."""
    client = connect(redis_url)
    yield Bench(client)
    client.delete(CLOCK_KEY)
    client.close()


def take_over(bench: Bench, name: str) -> tuple[Hand, list[Attempt]]:
    """Let every worker's time pass, then let a new one take over and start what they held."""
    heir, entries = take_over_only(bench, name)
    return heir, heir.begin(entries)


def take_over_only(bench: Bench, name: str) -> tuple[Hand, list[Entry]]:
    """The same, without a start."""
    bench.world.advance(2 * TTL_MS)
    heir = bench.hire(name)
    for _ in range(3):
        bench.world.advance(TTL_MS // 2)
        heir.upkeep.beat(b"")
    return heir, list(heir.upkeep.reclaim(100).entries)


def test_a_started_job_runs_under_its_token_and_counts_one_attempt(bench: Bench) -> None:
    """The record names the worker and the attempt."""
    hand = bench.hire("w")
    bench.submit("a")
    (attempt,) = hand.begin()
    assert (attempt.number, attempt.suspect, bench.states("a")) == (1, False, ["running"])
    assert (bench.field("a", "tk"), bench.field("a", "wk")) == (attempt.token, "w")


def test_start_repeated_with_its_token_gives_the_same_and_counts_nothing(bench: Bench) -> None:
    """As after a lost reply that the client library repeats."""
    hand = bench.hire("w")
    bench.submit("a")
    hand.connection.next_fault.append(Fault.TWICE)
    (attempt,) = hand.begin()
    assert (attempt.number, bench.field("a", "at")) == (1, "1")
    assert hand.attempts.finish([done(attempt)]) == ["done"]


def test_an_entry_that_another_consumer_holds_is_lost(bench: Bench) -> None:
    """Nothing is acknowledged and nothing changes."""
    first, second = bench.hire("first"), bench.hire("second")
    bench.submit("a")
    entries = first.read()
    (answer,) = second.attempts.start(entries)
    assert isinstance(answer, Refusal)
    assert (answer.reason, bench.states("a")) == ("lost", ["queued"])


def test_a_second_entry_of_a_job_is_stale_and_goes(bench: Bench) -> None:
    """Whoever added it: the record names one entry, and only that one counts."""
    hand = bench.hire("w")
    bench.submit("a")
    bench.redis.xadd(bench.keys.lane("high"), {"id": "a", "n": 1})
    answers = hand.attempts.start(hand.read())
    assert sorted(type(item).__name__ for item in answers) == ["Attempt", "Refusal"]
    assert bench.redis.xlen(bench.keys.lane("high")) == 0


def test_an_entry_without_a_record_ends_in_the_dead_letters(bench: Bench) -> None:
    """With its place, and without a record to be replayed."""
    hand = bench.hire("w")
    entry_id = bench.redis.xadd(bench.keys.lane("low"), {"id": "ghost"}).decode()
    hand.attempts.start(hand.read())
    ((_, letter),) = bench.redis.xrange(bench.keys.named("dead"))
    assert letter == {b"id": b"ghost", b"code": b"no-record", b"entry": f"low:{entry_id}".encode()}
    assert bench.redis.xlen(bench.keys.lane("low")) == 0


def test_an_overdue_job_ends_before_it_costs_device_time(bench: Bench) -> None:
    """Start itself looks at the clock."""
    hand = bench.hire("w")
    bench.submit("a", expires_s=1.0)
    entries = hand.read()
    bench.world.advance(1001)
    assert hand.begin(entries) == []
    assert bench.states("a") == ["expired"]


def test_a_start_tells_the_lane_of_the_job_and_what_is_left_until_its_deadline(bench: Bench) -> None:
    """The lane of the job where its entry lies in `again`; a repeated start tells the same; a late job still runs."""
    hand = bench.hire("w")
    bench.submit("soon", lane="high", deadline_s=2.0)
    bench.submit("whenever", lane="low")
    first = {attempt.job_id: attempt for attempt in hand.begin()}
    assert {job_id: (item.lane, item.deadline_s) for job_id, item in first.items()} == {
        "soon": ("high", 2.0),
        "whenever": ("low", inf),
    }
    hand.attempts.release([(item.entry, item.token) for item in first.values()])
    bench.world.advance(5000)
    again = hand.read()
    assert {entry.lane for entry in again} == {"again"}
    second = {attempt.job_id: attempt for attempt in hand.begin(again)}
    assert (second["soon"].lane, second["soon"].deadline_s, second["whenever"].lane) == ("high", -3.0, "low")


def test_finish_stores_and_acknowledges_in_one_step(bench: Bench) -> None:
    """The record keeps the result, not the payload; nothing is pending; the TTL runs."""
    hand = bench.hire("w")
    bench.submit("a")
    (attempt,) = hand.begin()
    assert hand.attempts.finish([done(attempt, b"value")]) == ["done"]
    assert (bench.field("a", "rs"), bench.field("a", "pl"), bench.states("a")) == ("value", "", ["done"])
    assert bench.redis.xlen(bench.keys.lane("normal")) == 0
    assert hand.upkeep.renew() == []
    assert bench.redis.pttl(bench.keys.job("a")) > 119_000


def test_a_result_that_never_expires_has_no_ttl(bench: Bench) -> None:
    """A result TTL of 0 means for good."""
    hand = bench.hire("w")
    bench.submit("a", result_ttl_s=0)
    hand.attempts.finish([done(item) for item in hand.begin()])
    assert bench.redis.pttl(bench.keys.job("a")) == -1


@pytest.mark.parametrize("ending", ["finish", "fail", "bury", "retry", "release"])
def test_every_ending_answers_already_when_it_is_repeated(bench: Bench, ending: str) -> None:
    """And a call by an older token is lost, whatever it wants."""
    hand = bench.hire("w")
    bench.submit("a")
    (attempt,) = hand.begin()
    calls = {
        "finish": lambda: hand.attempts.finish([done(attempt)]),
        "fail": lambda: hand.attempts.fail([fault(attempt)]),
        "bury": lambda: hand.attempts.bury([fault(attempt)]),
        "retry": lambda: hand.attempts.retry([fault(attempt)], 100),
        "release": lambda: hand.attempts.release([(attempt.entry, attempt.token)]),
    }
    (state,) = calls[ending]()
    assert calls[ending]() == [f"already:{state}"]
    bench.redis.hset(bench.keys.job("a"), "tk", "somebody-elses")
    assert calls[ending]() == ["lost"]


def test_retry_waits_then_returns_through_the_lane_again(bench: Bench) -> None:
    """The attempt stays counted and the error stays on the record."""
    hand = bench.hire("w")
    bench.submit("a")
    (attempt,) = hand.begin()
    assert hand.attempts.retry([fault(attempt)], 500) == ["delayed"]
    assert hand.upkeep.promote() == 0
    bench.world.advance(500)
    assert hand.upkeep.promote() == 1
    assert hand.upkeep.promote() == 0
    (again,) = hand.begin()
    assert (again.entry.lane, again.number, bench.field("a", "ec")) == ("again", 2, "code")


def test_retry_without_an_attempt_left_is_a_dead_letter(bench: Bench) -> None:
    """Record and entry name each other."""
    hand = bench.hire("w")
    bench.submit("a", max_attempts=1)
    assert hand.attempts.retry([fault(item) for item in hand.begin()], 0) == ["dead"]
    ((entry_id, letter),) = bench.redis.xrange(bench.keys.named("dead"))
    assert (bench.field("a", "de"), letter[b"id"], letter[b"code"]) == (entry_id.decode(), b"a", b"code")
    assert bench.redis.hexists(bench.keys.job("a"), "pl")


def test_release_takes_the_attempt_back(bench: Bench) -> None:
    """Started or only fetched: the job is ready again at once, in the lane that is read first."""
    hand = bench.hire("w")
    bench.submit("started", "fetched")
    begun, fetched = hand.read()
    (attempt,) = hand.begin([begun])
    assert hand.attempts.release([(begun, attempt.token), (fetched, "")]) == ["queued", "queued"]
    assert [bench.field(job_id, "at") for job_id in ("started", "fetched")] == ["0", "0"]
    assert [item.entry.lane for item in hand.begin()] == ["again", "again"]


def test_a_job_left_running_by_a_dead_worker_costs_no_attempt(bench: Bench) -> None:
    """Unless the worker had marked it; and the dead one's token is worth nothing from then on."""
    first = bench.hire("first")
    bench.submit("marked", "buffered")
    attempts = {item.job_id: item for item in first.begin()}
    first.attempts.mark("run", ["marked"])
    _, taken = take_over(bench, "second")
    assert {(item.job_id, item.number, item.suspect) for item in taken} == {("marked", 2, True), ("buffered", 1, False)}
    assert first.attempts.finish([done(attempts["buffered"])]) == ["lost"]


def test_suspects_are_spared_where_asked_and_only_what_was_begun_is_noted(bench: Bench) -> None:
    """One call begins the innocents and names the suspects, which cost nothing until they are begun alone."""
    bench.submit("marked", "buffered")
    first = bench.hire("first")
    first.begin()
    first.attempts.mark("run", ["marked"])
    second, entries = take_over_only(bench, "second")
    answers = second.attempts.start(entries, stage="tokenise", spare_suspects=True)
    refused, begun = sorted(answers, key=lambda answer: isinstance(answer, Attempt))
    assert isinstance(refused, Refusal)
    assert (refused.entry.job_id, refused.reason, bench.field("marked", "at")) == ("marked", "suspect", "1")
    assert isinstance(begun, Attempt)
    assert begun.job_id == "buffered"
    assert bench.redis.hget(bench.keys.named("batch"), "second:tokenise") == b"buffered"
    (alone,) = second.begin([refused.entry])
    assert (alone.job_id, alone.number, alone.suspect) == ("marked", 2, True)


def test_five_takeovers_make_a_suspect_of_a_job_that_nobody_marked(bench: Bench) -> None:
    """So a job that kills workers before they can mark it still comes to an end."""
    bench.submit("killer")
    bench.hire("w0").begin()
    seen = []
    for number in range(1, 9):
        _, taken = take_over(bench, f"w{number}")
        seen += [(item.number, item.suspect) for item in taken]
    assert seen == [(1, False)] * 4 + [(2, True), (3, True)]
    assert bench.states("killer") == ["dead"]
    assert not bench.redis.exists(bench.keys.named("suspects"))


def test_a_lost_reply_of_finish_leaves_the_job_done(bench: Bench) -> None:
    """The worker learns it from the repeat."""
    hand = bench.hire("w")
    bench.submit("a")
    (attempt,) = hand.begin()
    hand.connection.next_fault.append(Fault.LOST_REPLY)
    with pytest.raises(ServerUnavailable):
        hand.attempts.finish([done(attempt)])
    assert hand.attempts.finish([done(attempt)]) == ["already:done"]
