from __future__ import annotations

from collections.abc import Iterable

import pytest

from benchmarks import engine, fleet, latency, memory
from benchmarks.figures import FIGURES, OPTIONAL
from benchmarks.long_run import random_batch
from benchmarks.plain_encode import BATCH

MEASURED_APART = {"engine": {"gemm_share_fp32", "gemm_share_best", "padding_waste_padded_64"}, "fleet": {"jobs_per_s"}}


def rounds(names: Iterable[str], seconds: float) -> dict[str, list[float]]:
    """The same time for each in three rounds."""
    return dict.fromkeys(names, [seconds] * 3)


def engine_rounds(precision: str) -> dict[str, list[float]]:
    """Ours takes 1, ours in fp32 2, the library 4 and twice that in fp32, infinity-emb 6 and 3."""
    usual = (engine.ENCODE, engine.ARRIVAL, engine.ONE_BY_ONE)
    return {
        **rounds([engine.OWN], 1.0),
        **rounds([engine.OWN_FP32], 2.0),
        **rounds([f"{name} {precision}" for name in usual], 4.0),
        **rounds([f"{name} fp32" for name in usual], 8.0),
        **rounds([f"{engine.INFINITY} {precision}"], 3.0),
        **rounds([f"{engine.INFINITY} fp32"], 6.0),
        **rounds(engine.EXPORTED, 5.0),
    }


def test_the_figures_of_the_engine_are_those_that_are_named() -> None:
    """Each rival over ours in the same rounds; infinity-emb at its best."""
    found = engine.compare(engine_rounds("bf16"), "bf16")
    assert set(found) | MEASURED_APART["engine"] == set(FIGURES["engine"])
    assert found["vs_encode_fp32"] == 8.0
    assert found["vs_encode_same_precision"] == 4.0
    assert found["fp32_vs_encode_fp32"] == 4.0
    assert found["vs_infinity"] == 3.0


def test_in_fp32_the_same_precision_is_the_same_rival() -> None:
    """So that no figure is missing on a machine that has no other."""
    found = engine.compare(engine_rounds("fp32"), "fp32")
    assert found["vs_encode_same_precision"] == found["vs_encode_fp32"] == 8.0


def test_figures_of_rivals_that_are_not_there_are_left_out() -> None:
    """And no others."""
    there = {name: values for name, values in engine_rounds("bf16").items() if name.partition(" ")[0] in {
        engine.OWN, engine.ENCODE, "arrival", "one",
    }}  # fmt: skip
    found = engine.compare(there, "bf16")
    assert set(FIGURES["engine"]) - set(found) - MEASURED_APART["engine"] <= OPTIONAL


def test_the_figures_of_the_fleet_are_those_that_are_named() -> None:
    """Throughput over throughput, so that `vs_engine` is under 1 where Redis costs something."""
    found = fleet.compare(
        {
            **rounds([fleet.ENGINE], 9.0),
            **rounds([fleet.ONE], 10.0),
            **rounds([fleet.MANY], 9.0),
            **rounds([f"{fleet.ARRIVAL} fp32", f"{fleet.ARRIVAL} bf16", fleet.EACH, fleet.RQ], 200.0),
        },
        "bf16",
    )
    assert set(found) | MEASURED_APART["fleet"] == set(FIGURES["fleet"])
    assert found["vs_engine"] == pytest.approx(0.9)
    assert found[f"vs_engine_{BATCH}_a_job"] == pytest.approx(1.0)
    assert found["vs_rq"] == pytest.approx(20.0)


def test_the_figures_of_latency_are_those_that_are_named() -> None:
    """What is added is over the bare pass of the same text."""
    texts, bare_s = ["short", "long"] * 50, {"short": 0.001, "long": 0.010}
    taken_s = [bare_s[text] + (0.002 if place < 98 else 0.050) for place, text in enumerate(texts)]
    found = latency.added("idle", texts, taken_s, bare_s)
    assert found["idle_added_p50_ms"] == pytest.approx(2.0)
    assert found["idle_added_p99_ms"] == pytest.approx(50.0)
    for load in latency.LOADS:
        found |= latency.added(f"load{load}", texts, taken_s, bare_s)
    assert set(found) == set(FIGURES["latency"])


def test_the_figures_of_memory_are_those_that_are_named() -> None:
    """Growth counts from the 50th batch."""
    run = {"settled_mb": 100.0, "end_mb": 130.0, "peak_mb": 150.0, "pool_hits": 999, "pool_misses": 1}
    found = memory.figures(run)
    assert found == {"rss_growth_mb": 30.0, "peak_rss_mb": 150.0, "pool_hit_rate": 0.999}
    assert set(found) == set(FIGURES["memory"])


def test_random_batches_keep_to_the_limits_and_differ_in_shape() -> None:
    """Within the most tokens and rows, but for a row that is alone."""
    import random

    draw = random.Random(5)
    batches = [random_batch(draw, 2048, 64) for _ in range(300)]
    assert all(len(batch.rows) <= 64 for batch in batches)
    assert all(batch.real_tokens <= 2048 or len(batch.rows) == 1 for batch in batches)
    assert len({(len(batch.rows), batch.longest) for batch in batches}) > 200
