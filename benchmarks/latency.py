"""`latency`: what a queue adds to a request, over the bare forward pass of its text: idle, and at three loads."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import cycle, islice
from statistics import median
from time import perf_counter
from typing import Any, Final

from benchmarks.arrivals import closed_loop, open_loop, poisson_times
from benchmarks.corpus import SEED, Corpus
from benchmarks.measure import Plan, Report, Spread, Timing, percentile, timed
from benchmarks.own_engine import MODEL, QUEUE, OwnEngine, queue_table
from benchmarks.served import Served, serving
from cordwood import AsyncClient

LOADS: Final = (30, 60, 90)
"""Arrivals in percent of the throughput."""
TEXTS: Final = 50
BARE_RUNS: Final = 7
IN_FLIGHT: Final = 256
TIMEOUT_S: Final = 120.0


def run(*, quick: bool) -> Report:
    """Measure on this machine's usual device."""
    return measure(Plan.usual(quick=quick))


def measure(plan: Plan) -> Report:
    """Measure the bare passes, then the requests of one client on one worker process."""
    engine = OwnEngine(queue_table(device=plan.device))
    corpus = engine.corpus(plan.texts)
    few = corpus.sample(TEXTS)
    report = Report(benchmark="latency", settings=_settings(plan, corpus, engine))
    with serving(engine.pinned) as served:
        bare_s = bare_seconds(engine, few.texts)
        seconds, rate_per_s = asyncio.run(_requests(served, few, corpus, plan))
    report.settings["throughput_per_s"] = round(rate_per_s, 1)
    report.results["bare forward"] = Timing(seconds=Spread.of(list(bare_s.values())))
    for name, (texts, taken_s) in seconds.items():
        report.results[name] = Timing(seconds=Spread.of(taken_s), texts=len(texts))
        report.figures |= added(name, texts, taken_s, bare_s)
    return report


def added(name: str, texts: Sequence[str], taken_s: Sequence[float], bare_s: Mapping[str, float]) -> dict[str, float]:
    """Return p50 and p99 of what was added to the bare pass of the same text, in ms, under the name of the load."""
    over_ms = [1000 * (taken - bare_s[text]) for text, taken in zip(texts, taken_s, strict=True)]
    prefix = "idle_added" if name == "idle" else name
    return {f"{prefix}_p50_ms": percentile(over_ms, 0.5), f"{prefix}_p99_ms": percentile(over_ms, 0.99)}


def bare_seconds(engine: OwnEngine, texts: Sequence[str]) -> dict[str, float]:
    """Return the median time of the forward pass of each text alone, without tokenising."""
    return {
        text: median(timed(partial(engine.backend.run, batch)) for _ in range(BARE_RUNS))
        for text in texts
        for batch in engine.batches([text])
    }


async def _requests(
    served: Served, few: Corpus, corpus: Corpus, plan: Plan
) -> tuple[dict[str, tuple[list[str], list[float]]], float]:
    """Return the texts and seconds of the requests by load, and the throughput in requests per second.

    The throughput is that of this client, which submits and waits for each text by itself, and the worker together.
    """
    load_s, idle = (5.0, 100) if plan.quick else (20.0, 400)
    seconds: dict[str, tuple[list[str], list[float]]] = {}
    async with AsyncClient(served.url, queue=QUEUE) as client:

        async def request(text: str) -> object:
            return await client.wait(await client.submit(text), timeout_s=TIMEOUT_S)

        await closed_loop(request, few.texts, 1)
        texts = list(islice(cycle(few.texts), idle))
        seconds["idle"] = texts, [await _timed(request, text) for text in texts]
        rate_per_s = await closed_loop(request, corpus.texts, IN_FLIGHT)
        for load in LOADS:
            times = poisson_times(rate_per_s * load / 100, load_s, SEED + load)
            texts = list(islice(cycle(few.texts), len(times)))
            seconds[f"load{load}"] = texts, await open_loop(request, texts, times)
    return seconds, rate_per_s


async def _timed(request: Any, text: str) -> float:
    began_s = perf_counter()
    await request(text)
    return perf_counter() - began_s


def _settings(plan: Plan, corpus: Corpus, engine: OwnEngine) -> dict[str, Any]:
    return {"model": MODEL, "corpus": corpus.digest, "quick": plan.quick, "engine": str(engine), "in_flight": IN_FLIGHT}
