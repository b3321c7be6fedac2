"""A worker that stands still beyond its heartbeat's TTL, and comes back to find its jobs taken."""

from __future__ import annotations

import signal

import pytest

from tests.fleet import Fleet
from tests.monitor import Monitor
from tests.outcomes import check_all_done, check_nothing_left, submit
from tests.waiting import wait_until


@pytest.mark.timeout(120)
def test_a_worker_frozen_in_mid_batch_changes_nothing_when_it_thaws(fleet: Fleet) -> None:
    """Its jobs are done by another one meanwhile, once; its own results for them are refused; then it works on."""
    fleet.configure(holding=True)
    fleet.hold()
    frozen = fleet.start()[0]
    jobs = submit(fleet, [f"text {number}" for number in range(40)])
    batch = fleet.batch_of(frozen)
    frozen.send(signal.SIGSTOP)
    with Monitor(fleet.url) as monitor:
        fleet.configure()
        fleet.start()
        check_all_done(fleet, jobs)
        fleet.let_go()
        frozen.send(signal.SIGCONT)
        frozen.wait_for_log("'lost'")
        wait_until(lambda: fleet.stat("rows") >= len(jobs) + len(batch), description="it has computed its batch")
        check_all_done(fleet, jobs)
        assert dict(monitor.outcomes()) == dict.fromkeys(jobs, 1)
    assert fleet.stat("done") == len(jobs)
    for worker in fleet.living:
        if worker is not frozen:
            worker.kill()
    check_all_done(fleet, submit(fleet, ["work for the thawed one"]))
    check_nothing_left(fleet)
