"""Workers killed in mid-batch: the quick rounds; tests/chaos has the long ones."""

from __future__ import annotations

from random import Random

import pytest

from tests.fleet import QUICK, Fleet
from tests.killing import TAKEN_UP_S, Rounds
from tests.monitor import Monitor
from tests.outcomes import check_all_done, check_nothing_left, submit
from tests.waiting import wait_until

SEED = 20261


@pytest.mark.timeout(240)
def test_c16_a_worker_killed_in_mid_batch_costs_nothing(fleet: Fleet) -> None:
    """Twice, 200 jobs in batches of 16: each has its one result, and nothing stays pending or locked."""
    fleet.configure(options={"delay_s": 0.1})
    fleet.start(2)
    rounds = Rounds(fleet, Random(SEED), jobs=200, batch_s=0.1)
    with Monitor(fleet.url) as monitor:
        rounds.kill_one()
        rounds.kill_one()
        outcomes = monitor.outcomes()
    assert rounds.killed == 2
    assert len(outcomes) == 400
    assert set(outcomes.values()) == {1}


@pytest.mark.timeout(180)
def test_c16_all_workers_killed_and_one_new_costs_nothing(fleet: Fleet) -> None:
    """A worker with a new name finds and does all that the dead ones left."""
    fleet.configure(options={"delay_s": 0.1})
    fleet.start(2)
    Rounds(fleet, Random(SEED), jobs=200, batch_s=0.1).kill_all()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", [1, 2])
def test_5000_jobs_outlive_a_killed_worker_and_none_is_stored_twice(fleet: Fleet, seed: int) -> None:
    """Two workers, one killed at a random moment: every outcome is written once, as the server itself tells."""
    random = Random(seed)
    fleet.configure({**QUICK, "max_batch_rows": 64}, options={"delay_s": 0.02})
    fleet.start(2)
    with Monitor(fleet.url) as monitor:
        jobs = submit(fleet, [f"text {number}" for number in range(5000)])
        threshold = random.randrange(4500)
        wait_until(lambda: fleet.stat("done") >= threshold, description="some jobs are done", timeout_s=60)
        random.choice(fleet.living).kill()
        check_all_done(fleet, jobs, timeout_s=TAKEN_UP_S + 30)
        outcomes = monitor.outcomes()
    assert dict(outcomes) == dict.fromkeys(jobs, 1)
    assert fleet.stat("done") == 5000
    check_nothing_left(fleet)
