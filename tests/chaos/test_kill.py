"""The long rounds of workers killed in mid-batch; tests/redis/test_worker_kill.py has the quick ones."""

from __future__ import annotations

from random import Random

import pytest

from cordwood.errors import JobDead
from cordwood_worker.testing import KILL
from tests.fleet import Fleet
from tests.killing import Rounds, kill_one_of_two
from tests.monitor import Monitor
from tests.outcomes import check_all_done, check_nothing_left

SEED = 16
BATCH_S = 0.3


@pytest.mark.timeout(1200)
def test_c16_twenty_rounds_of_kills_at_any_moment_cost_nothing(fleet: Fleet) -> None:
    """200 jobs in batches of 16 of 300 ms each: kills at random, in the reclaim, after a write, and of all workers."""
    fleet.configure(options={"delay_s": BATCH_S})
    fleet.start(2)
    rounds = Rounds(fleet, Random(SEED), jobs=200, batch_s=BATCH_S)
    kinds = [rounds.kill_one] * 10 + [rounds.kill_who_stores] * 4 + [rounds.kill_who_reclaims] * 4
    with Monitor(fleet.url) as monitor:
        for kill in Random(SEED).sample([*kinds, rounds.kill_all, rounds.kill_all], 20):
            kill()
        written = monitor.outcomes()
    assert rounds.killed >= 26
    assert len(written) == 20 * 200
    assert set(written.values()) == {1}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(100, 120))
def test_5000_jobs_outlive_a_killed_worker_and_none_is_stored_twice(fleet: Fleet, seed: int) -> None:
    """Every outcome is written once, as the server itself tells."""
    kill_one_of_two(fleet, Random(seed), jobs=5000)


@pytest.mark.timeout(600)
def test_two_texts_that_kill_their_process_are_found_among_200_with_the_default_attempts(fleet: Fleet) -> None:
    """Each ends in the dead letters after its 5 attempts; no other job does, whoever was on the device with it."""
    texts = [f"{KILL if number in {37, 120} else 'good'} {number}" for number in range(200)]
    jobs = dict(zip(fleet.client.submit_many(texts), texts, strict=True))
    fleet.supervise(
        lambda: all(fleet.client.result(job_id) is not None for job_id in jobs), most_starts=14, timeout_s=500
    )
    outcomes = {text: fleet.client.result(job_id) for job_id, text in jobs.items()}
    dead = {text: outcome for text, outcome in outcomes.items() if isinstance(outcome, JobDead)}
    assert dead.keys() == {f"{KILL} 37", f"{KILL} 120"}
    assert {outcome.code for outcome in dead.values()} == {"worker-died"}
    check_all_done(fleet, {job_id: text for job_id, text in jobs.items() if text not in dead})
    check_nothing_left(fleet)
