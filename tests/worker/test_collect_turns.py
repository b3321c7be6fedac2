"""How long a tenant's few jobs take behind another's flood: the window and the bound on bypasses, without a server."""

from __future__ import annotations

from itertools import chain, repeat
from random import Random
from typing import Final

import pytest

from cordwood_worker.collect import Collector
from cordwood_worker.draft import BatchLimits
from cordwood_worker.fetch import WINDOW_PART
from cordwood_worker.hopper import AGE_FAVOURED
from cordwood_worker.line import BYPASS_PER_BATCH_AHEAD
from tests.worker.rows import make_row

LOOKAHEAD: Final = 4
ROWS: Final = 32
FEW: Final = 10
MIXED: Final = {"few lengths": (20, 30, 50, 80, 130, 210, 340), "all lengths": tuple(range(3, 128))}


class Flood:
    """A worker that is full of one tenant's rows of mixed lengths when another's few come, which then alternate."""

    def __init__(self, seed: int, lengths: tuple[int, ...]) -> None:
        limits = BatchLimits(
            max_tokens=1_000_000,
            max_rows=ROWS,
            max_wait_s=0.0,
            max_bypass=BYPASS_PER_BATCH_AHEAD * LOOKAHEAD // AGE_FAVOURED,
        )
        self._random = Random(seed)
        self._lengths = lengths
        self._collector = Collector(limits)
        self._numbers = iter(range(1_000_000))
        self._add(["flood"] * int(WINDOW_PART * LOOKAHEAD * ROWS))
        for _ in range(10):
            self._take()
            self._add(["flood"] * ROWS)
        # It is on the device when the others come, so that one batch less is buffered.
        self._take()

    def batches_until_done(self) -> int:
        """Return the number of batches begun until the last of the few was in one."""
        turns = chain(["few", "flood"] * FEW, repeat("flood"))
        batches = done = 0
        while done < FEW:
            done += self._take()
            batches += 1
            self._add([next(turns) for _ in range(ROWS)])
        return batches

    def _add(self, tenants: list[str]) -> None:
        for tenant in tenants:
            number = next(self._numbers)
            self._collector.add(
                [make_row(number, self._random.choice(self._lengths), number, job=f"{tenant}-{number}")]
            )

    def _take(self) -> int:
        batch = self._collector.take(1e9, flush=True)
        assert batch is not None
        return sum(each.job_id.startswith("few") for each in batch.rows)


@pytest.mark.parametrize("lengths", MIXED.values(), ids=MIXED)
def test_ten_jobs_behind_a_flood_are_done_within_five_batches(lengths: tuple[int, ...]) -> None:
    """Whatever the lengths, and though lengths decide what joins a batch."""
    assert max(Flood(seed, lengths).batches_until_done() for seed in range(60)) <= 5
