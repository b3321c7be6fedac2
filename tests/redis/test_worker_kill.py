"""Workers killed in mid-batch: the quick rounds; tests/chaos has the long ones."""

from __future__ import annotations

from random import Random

import pytest

from tests.fleet import Fleet
from tests.killing import Rounds, kill_one_of_two
from tests.monitor import Monitor

SEED = 20261
BATCH_S = 0.05


@pytest.mark.timeout(240)
def test_c16_a_worker_killed_in_mid_batch_costs_nothing(fleet: Fleet) -> None:
    """Twice, 200 jobs in batches of 16: each has its one result, and nothing stays pending or locked."""
    fleet.configure(options={"delay_s": BATCH_S})
    fleet.start(2)
    rounds = Rounds(fleet, Random(SEED), jobs=200, batch_s=BATCH_S)
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
    fleet.configure(options={"delay_s": BATCH_S})
    fleet.start(2)
    Rounds(fleet, Random(SEED), jobs=200, batch_s=BATCH_S).kill_all()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", [1, 2])
def test_5000_jobs_outlive_a_killed_worker_and_none_is_stored_twice(fleet: Fleet, seed: int) -> None:
    """Every outcome is written once, as the server itself tells."""
    kill_one_of_two(fleet, Random(seed), jobs=5000)
