import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.calls import WATCHED_PER_CALL
from cordwood.errors import InvalidInput, ServerUnavailable, WaitTimeout
from cordwood.waiting import FIRST_ANSWER_S, LONGEST_PAUSE_S, LONGEST_RECHECK_S, RECHECK_S
from tests.producer.simulated_wait import START_S, Event, World

JOBS = ("a", "b", "c", "d")
ROUNDING_S = 1e-6

moments = st.integers(0, 400).map(lambda tenths: tenths / 10)
events = st.builds(
    Event, moments, st.sampled_from(["end", "end_untold", "wipe", "begin", "gap"]), st.sampled_from(JOBS)
)
outages = st.lists(st.tuples(moments, st.integers(1, 80).map(lambda tenths: tenths / 10)), max_size=2)


def with_outages(happening: list[Event], down: list[tuple[float, float]]) -> list[Event]:
    """Add outages that do not overlap; none begins before the first look."""
    free_s = 0.05
    added = []
    for at_s, length_s in sorted(down):
        begin_s = max(at_s, free_s)
        free_s = begin_s + length_s + 0.1
        added += [Event(begin_s, "down"), Event(begin_s + length_s, "up")]
    return happening + added


def drained(world: World, timeout_s: float | None) -> tuple[dict[str, float], WaitTimeout | None]:
    """Wait for all jobs; return when each was found, and the timeout if there was one."""
    found: dict[str, float] = {}
    try:
        found.update(world.outcomes(world.wait(JOBS, timeout_s)))
    except WaitTimeout as timeout:
        return found, timeout
    return found, None


def is_down(world_events: list[Event], at_s: float) -> bool:
    """Whether the server cannot be reached at this moment."""
    changes = [event for event in world_events if event.kind in {"down", "up"} and event.at_s <= at_s]
    return bool(changes) and max(changes, key=lambda event: event.at_s).kind == "down"


@given(st.lists(events, max_size=12), outages, st.integers(0, 300).map(lambda tenths: tenths / 10))
def test_a_wait_ends_in_what_became_of_its_jobs_or_in_a_timeout_that_is_true(
    happening: list[Event], down: list[tuple[float, float]], timeout_s: float
) -> None:
    """Whatever happens untold, in a gap or in an outage: nothing that is there by the deadline is missed."""
    plan = with_outages(happening, down)
    world = World(list(plan))
    found, timeout = drained(world, timeout_s)
    live = {job_id for job_id in JOBS if world.states[job_id] in {"queued", "running"}}
    assert world.table.is_idle
    assert not live & set(found)
    if timeout is None:
        assert set(found) == set(JOBS)
        return
    elapsed_s = world.now_s - START_S
    assert set(timeout.job_ids) == set(JOBS) - set(found)
    assert timeout_s - ROUNDING_S <= elapsed_s <= timeout_s + ROUNDING_S
    down_then = is_down(plan, elapsed_s - ROUNDING_S) or is_down(plan, elapsed_s + ROUNDING_S)
    assert down_then or set(timeout.job_ids) == live


@given(st.lists(events, max_size=12), outages)
def test_an_outcome_is_found_at_once_if_told_and_soon_if_not(
    happening: list[Event], down: list[tuple[float, float]]
) -> None:
    """A silence, an outage or a gap is followed by a look at everything; the wait without a timeout ends too."""
    endings = [Event(40.0, "end_untold", job_id) for job_id in JOBS]
    plan = with_outages(happening, down)
    world = World([*plan, *endings])
    for job_id, at_s in world.outcomes(world.wait(JOBS, None)):
        there_s = world.ended_s.get(job_id, 0.0)
        wiped = [event.at_s for event in happening if event.kind == "wipe" and event.job_id == job_id]
        outage_s = max((length_s for _, length_s in down), default=0.0)
        assert at_s <= max(there_s, *wiped, 0.0) + RECHECK_S + 2 * outage_s + LONGEST_PAUSE_S + 1
        told = [event.at_s for event in happening if (event.kind, event.job_id) == ("end", job_id)]
        if not down and told and told[0] == there_s:
            assert at_s == pytest.approx(there_s)


@given(st.sampled_from([1, 2, WATCHED_PER_CALL, WATCHED_PER_CALL + 1]), st.floats(0, 60))
def test_a_silent_wait_looks_at_nothing_but_once_in_a_while(count: int, timeout_s: float) -> None:
    """No polling: the first look, one after each silence, and the last."""
    job_ids = [f"job-{number}" for number in range(count)]
    world = World([])
    with pytest.raises(WaitTimeout):
        list(world.outcomes(world.wait(job_ids, timeout_s)))
    looks = 2 + timeout_s / RECHECK_S
    assert len(world.watched) <= looks * -(-count // WATCHED_PER_CALL)
    assert max(map(len, world.watched)) <= WATCHED_PER_CALL


def test_a_very_large_silent_wait_looks_more_seldom() -> None:
    """So that waiting for a backlog does not become a load of its own."""
    job_ids = [f"job-{number}" for number in range(5000)]
    world = World([])
    with pytest.raises(WaitTimeout):
        list(world.outcomes(world.wait(job_ids, 100)))
    full_looks = len(world.watched) / -(-len(job_ids) // WATCHED_PER_CALL)
    assert full_looks <= 2 + 100 / (0.005 * len(job_ids))
    assert 0.005 * len(job_ids) <= LONGEST_RECHECK_S


def test_what_is_told_is_looked_at_and_nothing_else() -> None:
    """In the order of the telling."""
    order = ["c", "a", "d", "b"]
    world = World([Event(1.0 + number, "end", job_id) for number, job_id in enumerate(order)])
    assert [job_id for job_id, _ in world.outcomes(world.wait(JOBS, 10))] == order
    assert world.watched == [JOBS, *((job_id,) for job_id in order)]
    assert len(set(world.masks)) == 1
    assert world.masks[0] > 0


def test_a_job_told_of_at_the_deadline_does_not_hide_another_that_is_there_untold() -> None:
    """Before it gives up the wait looks at everything, not only at what it was told of last."""
    world = World([Event(1.0, "end_untold", "b"), Event(2.0, "end", "a")])
    assert [job_id for job_id, _ in world.outcomes(world.wait(["a", "b"], 2.0))] == ["a", "b"]


def test_what_ended_before_comes_in_the_order_of_the_ends_with_the_missing_first() -> None:
    """A look at everything sorts by the server's time."""
    happening = [Event(0.0, "wipe", "d"), Event(1.0, "gap")]
    happening += [Event(at_s, "end_untold", job_id) for at_s, job_id in ((0.3, "c"), (0.5, "a"), (0.9, "b"))]
    world = World(happening)
    assert [job_id for job_id, _ in world.outcomes(world.wait(JOBS, 10))] == ["d", "c", "a", "b"]


def test_a_timeout_of_0_is_one_look_that_asks_for_nothing() -> None:
    """Nothing is listened to, no record is marked."""
    world = World([])
    with pytest.raises(WaitTimeout):
        list(world.outcomes(world.wait(JOBS, 0)))
    assert (world.steps, world.masks) == (["ScriptCall"], [0])


def test_listening_comes_before_the_first_look() -> None:
    """Otherwise an end between the two would be missed."""
    world = World([Event(0.5, "end", job_id) for job_id in JOBS])
    list(world.outcomes(world.wait(JOBS, 5)))
    assert world.steps[:3] == ["Listen", "ScriptCall", "Park"]


def test_a_server_that_was_never_reached_is_said_to_be_unavailable() -> None:
    """After a few seconds, or at the timeout if that is earlier, and never as a timeout."""
    for timeout_s, expected_s in ((None, FIRST_ANSWER_S), (60, FIRST_ANSWER_S), (1, 1), (0, 0)):
        world = World([Event(0.0, "down")])
        with pytest.raises(ServerUnavailable):
            list(world.outcomes(world.wait(JOBS, timeout_s)))
        assert world.now_s - START_S == pytest.approx(expected_s)


def test_a_server_that_comes_back_in_time_for_the_first_look_is_no_error() -> None:
    """A restart at the moment that a wait begins is a blip like any other."""
    world = World([Event(0.0, "down"), Event(2.0, "up"), *(Event(3.0, "end", job_id) for job_id in JOBS)])
    assert len(list(world.outcomes(world.wait(JOBS, 60)))) == 4


def test_a_timeout_during_an_outage_says_that_the_server_does_not_answer() -> None:
    """Because then it is not known whether the jobs have ended."""
    world = World([Event(1.0, "down"), Event(1.5, "end_untold", "a")])
    with pytest.raises(WaitTimeout, match="4 jobs have no outcome yet, the first is a; the server does not answer"):
        list(world.outcomes(world.wait(JOBS, 10)))
    assert world.now_s - START_S == pytest.approx(10)


@given(st.lists(st.floats(0.1, 30), min_size=4, max_size=4), st.booleans())
def test_overdue_jobs_are_ended_on_time_by_their_own_wait(expires: list[float], begun: bool) -> None:
    """Each when it is due, unless a worker has begun it."""
    happening = [Event(0.05, "begin", "a"), Event(31.0, "end", "a")] if begun else []
    world = World(happening, expires_s=dict(zip(JOBS, expires, strict=True)))
    for job_id, at_s in world.outcomes(world.wait(JOBS, 60)):
        if begun and job_id == "a":
            assert at_s == pytest.approx(31)
        else:
            due_s = world.expires_s[job_id]
            assert due_s - 0.001 <= at_s <= due_s + 0.002


@pytest.mark.parametrize("timeout_s", [-1, -0.001, float("nan"), "5", True, [1]])
def test_a_timeout_that_is_no_time_is_refused(timeout_s: object) -> None:
    """An infinite one is a long one."""
    with pytest.raises(InvalidInput, match="timeout_s"):
        World([]).wait(JOBS, timeout_s)  # type: ignore[arg-type]
    World([]).wait(JOBS, float("inf"))


def test_ids_are_checked_and_one_id_is_no_list() -> None:
    """Before anything is sent."""
    for job_ids in ("abc", ["two words"], [""], [5]):
        with pytest.raises(InvalidInput):
            World([]).wait(job_ids, 1)  # type: ignore[arg-type]
