"""Rounds in which workers are killed with signal 9 while they work, and what must be true after each."""

from __future__ import annotations

from random import Random
from threading import Event
from typing import Final

from tests.fleet import QUICK, Fleet
from tests.monitor import Monitor
from tests.outcomes import check_all_done, check_nothing_left, submit
from tests.waiting import wait_until

TAKEN_UP_S: Final = QUICK["lease_s"] + 15.0
"""The longest that jobs may take after the last kill."""


def kill_one_of_two(fleet: Fleet, random: Random, *, jobs: int) -> None:
    """Let two workers do many small jobs, kill one at a random moment, and check what the server was told to write."""
    fleet.configure({**QUICK, "max_batch_rows": 64}, options={"delay_s": 0.02})
    fleet.start(2)
    with Monitor(fleet.url) as monitor:
        submitted = submit(fleet, [f"text {number}" for number in range(jobs)])
        threshold = random.randrange(jobs * 9 // 10)
        wait_until(lambda: fleet.stat("done") >= threshold, description=f"{threshold} jobs are done", timeout_s=90)
        random.choice(fleet.living).kill()
        check_all_done(fleet, submitted, timeout_s=90)
        written = monitor.outcomes()
    assert dict(written) == dict.fromkeys(submitted, 1), "an outcome was written twice, or never"
    assert fleet.stat("done") == jobs
    check_nothing_left(fleet)


class Rounds:
    """Kill rounds on one fleet, each begun with as many workers as it has now; the moments come from `random`."""

    def __init__(self, fleet: Fleet, random: Random, *, jobs: int, batch_s: float) -> None:
        self._fleet = fleet
        self._random = random
        self._jobs = jobs
        self._batch_s = batch_s
        self._workers = len(fleet.living)
        self._round = 0
        self.killed = 0

    def kill_one(self) -> None:
        """Kill one worker at a random moment of a round, and replace it."""
        jobs = self._begin()
        self._wait_for_done(self._random.randrange(self._jobs * 3 // 4))
        self._pause()
        self._kill(1)
        self._fleet.spawn()
        self._check(jobs)

    def kill_all(self) -> None:
        """Kill every worker at the same moment, and start one new."""
        jobs = self._begin()
        self._wait_for_done(self._random.randrange(self._jobs // 2))
        self._pause()
        self._kill(len(self._fleet.living))
        self._fleet.start()
        self._check(jobs)

    def kill_who_reclaims(self) -> None:
        """Kill one worker, and the next as soon as it has taken over the first one's jobs."""
        jobs = self._begin()
        victim = self._random.choice(self._fleet.living)
        self._fleet.batch_of(victim)
        reclaimed = self._fleet.stat("reclaimed")
        victim.kill()
        self.killed += 1
        wait_until(lambda: self._fleet.stat("reclaimed") > reclaimed, description="jobs are taken over", timeout_s=30)
        self._kill(len(self._fleet.living))
        self._fleet.start(2)
        self._check(jobs)

    def kill_who_stores(self) -> None:
        """Kill one worker as soon as the server has stored a batch's results, whether or not it has heard of that."""
        jobs = self._begin()
        self._wait_for_done(self._random.randrange(1, self._jobs // 2))
        self._kill(1)
        self._fleet.spawn()
        self._check(jobs)

    def _begin(self) -> dict[str, str]:
        self._round += 1
        self._fleet.start(self._workers - len(self._fleet.living))
        for worker in self._fleet.living:
            self._fleet.consumer(worker)
        self._done_before = self._fleet.stat("done")
        return submit(self._fleet, [f"round {self._round}, text {number}" for number in range(self._jobs)])

    def _wait_for_done(self, count: int) -> None:
        wait_until(
            lambda: self._fleet.stat("done") >= self._done_before + count,
            description=f"{count} jobs are done",
            timeout_s=60,
        )

    def _pause(self) -> None:
        """Let the kill fall on any moment of a batch, not only on its end."""
        Event().wait(self._random.uniform(0, self._batch_s))

    def _kill(self, count: int) -> None:
        for worker in self._random.sample(self._fleet.living, count):
            worker.kill()
            self.killed += 1

    def _check(self, jobs: dict[str, str]) -> None:
        check_all_done(self._fleet, jobs, timeout_s=TAKEN_UP_S)
        check_nothing_left(self._fleet)
        assert self._fleet.stat("done") == self._done_before + self._jobs, "a job was stored twice"
