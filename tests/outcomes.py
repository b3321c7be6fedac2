"""What must be true of jobs, and of the server, when a fleet is through with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from cordwood.result import Outcome, Result
from cordwood_worker.testing import fault_vector
from tests.fleet import Fleet
from tests.leaks import leaked_keys
from tests.waiting import wait_until


def submit(fleet: Fleet, texts: Sequence[str]) -> dict[str, str]:
    """Submit texts, one a job, and return them by job ID."""
    return dict(zip(fleet.client.submit_many(texts), texts, strict=True))


def check_all_done(fleet: Fleet, jobs: Mapping[str, str], timeout_s: float = 40.0) -> None:
    """Wait for fault backends to do all jobs, and check that each has its own text's result."""
    check_results(fleet.client.wait_many(list(jobs), timeout_s=timeout_s), jobs)


def check_results(outcomes: Sequence[Outcome], jobs: Mapping[str, str]) -> None:
    """Check that these outcomes are the results of these jobs, in order, each that of its own text."""
    assert len(outcomes) == len(jobs)
    for outcome, (job_id, text) in zip(outcomes, jobs.items(), strict=True):
        assert isinstance(outcome, Result), outcome
        assert outcome.job_id == job_id
        assert np.array_equal(outcome.vector, fault_vector(text)), f"{job_id} has the result of another text"


def check_nothing_left(fleet: Fleet) -> None:
    """Check that no lane and no worker holds anything, and that no key without a TTL was left, such as a lock."""
    wait_until(lambda: not fleet.pending(), description=f"nothing is pending, now {fleet.pending()}")
    wait_until(lambda: not fleet.lengths(), description=f"the lanes are empty, now {fleet.lengths()}")
    wait_until(lambda: not fleet.held(), description=f"no worker holds anything, now {fleet.held()}")
    assert leaked_keys(fleet.redis) == []


def await_rows(fleet: Fleet, rows: int) -> None:
    """Wait until so many rows are counted in all: the statistics follow the results."""
    wait_until(lambda: fleet.stat("rows") == rows, description=f"{rows} rows are counted", timeout_s=30.0)
