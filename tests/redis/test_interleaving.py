"""Random interleavings of everything that can happen to a job; the long series is in tests/chaos."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

import pytest
import redis

from cordwood.connection import connect
from tests.interleaving.run import run_seed
from tests.interleaving.world import Violation

SEEDS: Final = range(20)
TOKEN_CHECK: Final = "if token == '' or f[2] ~= token then return nil, 'lost' end"


@pytest.fixture
def scripted(redis_url: str) -> redis.Redis:
    """A client such as the product's own."""
    return connect(redis_url)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_interleaving_loses_or_doubles_a_job(scripted: redis.Redis, seed: int) -> None:
    """Crashes, zombies, lost replies, repeated calls, clock jumps and refused memory leave every invariant whole."""
    world = run_seed(scripted, seed)
    assert len(world.ended) == len(world.accepted) > 20


def test_without_the_token_check_an_invariant_breaks(scripted: redis.Redis) -> None:
    """The same runs find the fault when whoever asks may end an attempt, so they can find faults."""
    lease = (files("cordwood.scripts") / "lib" / "lease.lua").read_text("utf-8")
    assert TOKEN_CHECK in lease
    broken = {"lease": lease.replace(TOKEN_CHECK, "")}

    def run_all() -> None:
        for seed in SEEDS:
            run_seed(scripted, seed, broken)

    with pytest.raises(Violation):
        run_all()
