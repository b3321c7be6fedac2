"""`fleet`: through Redis with one worker process, against the same engine in process and against naive workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from time import perf_counter
from typing import Any, Final

from benchmarks.corpus import Corpus, in_groups
from benchmarks.library import BATCH
from benchmarks.measure import Candidate, Plan, Report, rates, ratio, time_in_turn, timed
from benchmarks.naive_fleets import arrival_fleet, rq_fleet
from benchmarks.own_engine import MODEL, QUEUE, OwnEngine, queue_table
from benchmarks.processes import frozen
from benchmarks.served import Served, serving
from cordwood import Client
from cordwood.result import Result

ENGINE: Final = "engine in process"
ONE: Final = "fleet, 1 text a job"
MANY: Final = f"fleet, {BATCH} texts a job"
ARRIVAL: Final = f"arrival worker of {BATCH}"
EACH: Final = "encode per message fp32"
RQ: Final = "rq, 1 text a job fp32"
ARRIVAL_SHARE: Final = 4
EACH_SHARE: Final = 16
TIMEOUT_S: Final = 240.0


def run(*, quick: bool) -> Report:
    """Measure on this machine's usual device."""
    return measure(Plan.usual(quick=quick))


def measure(plan: Plan) -> Report:
    """Load all, each in a process of its own, time all in turn, and compare."""
    with ExitStack() as stack:
        engine = OwnEngine(queue_table(device=plan.device))
        corpus = engine.corpus(plan.texts)
        served = stack.enter_context(serving(queue_table(device=engine.device)))
        client = stack.enter_context(Client(served.url, queue=QUEUE))
        report = Report(benchmark="fleet", settings=_settings(plan, corpus, engine))
        candidates = {
            ENGINE: _candidate(partial(timed_embed, engine), corpus),
            ONE: _candidate(partial(through_redis, served, client, 1), corpus),
            MANY: _candidate(partial(through_redis, served, client, BATCH), corpus),
        }
        for candidate in candidates.values():
            candidate.seconds()
        candidates |= _naive(corpus, engine, served, stack, report.notes)
        seconds = time_in_turn(candidates, plan)
    report.results |= rates(candidates, seconds)
    report.figures |= compare(seconds, engine.precision)
    report.figures["jobs_per_s"] = report.results[ONE].texts_per_s
    report.settings["rounds"] = len(seconds[ENGINE])
    return report


def compare(seconds: Mapping[str, Sequence[float]], precision: str) -> dict[str, float]:
    """Return the figures that are ratios: our throughput through Redis with one text a job over that of the others."""
    rivals = {
        "vs_engine": ENGINE,
        "vs_arrival_worker": f"{ARRIVAL} fp32",
        "vs_arrival_worker_same_precision": f"{ARRIVAL} {precision}",
        "vs_encode_per_message": EACH,
        "vs_rq": RQ,
    }
    figures = {figure: ratio(seconds[rival], seconds[ONE]) for figure, rival in rivals.items() if rival in seconds}
    return {**figures, f"vs_engine_{BATCH}_a_job": ratio(seconds[ENGINE], seconds[MANY])}


def timed_embed(engine: OwnEngine, texts: Sequence[str]) -> float:
    """Return the seconds of embedding texts in this process."""
    return timed(lambda: engine.embed(texts))


def through_redis(served: Served, client: Client, size: int, texts: Sequence[str]) -> float:
    """Submit all texts, `size` a job; return the seconds from when the worker may begin until all results are read.

    Raises RuntimeError for a job without a result.
    """
    works = list(texts) if size == 1 else list(in_groups(texts, size))
    with frozen(served.worker):
        job_ids = client.submit_many(works)
        began_s = perf_counter()
    outcomes = client.wait_many(job_ids, timeout_s=TIMEOUT_S)
    vectors = [outcome.values for outcome in outcomes if isinstance(outcome, Result)]
    took_s = perf_counter() - began_s
    if sum(map(len, vectors)) != len(texts):
        raise RuntimeError(f"{sum(map(len, vectors))} vectors for {len(texts)} texts")
    return took_s


def _naive(
    corpus: Corpus, engine: OwnEngine, served: Served, stack: ExitStack, notes: list[str]
) -> dict[str, Candidate]:
    """Start the naive workers; they take a share of the texts, as they are slow."""
    candidates: dict[str, Candidate] = {}
    for precision in dict.fromkeys(("fp32", engine.precision)):
        fleet = stack.enter_context(arrival_fleet(served, BATCH, precision, engine.device))
        part = corpus.sample(len(corpus.texts) // ARRIVAL_SHARE)
        candidates[f"{ARRIVAL} {precision}"] = _candidate(fleet.seconds, part)
    part = corpus.sample(len(corpus.texts) // EACH_SHARE)
    each = stack.enter_context(arrival_fleet(served, 1, "fp32", engine.device))
    candidates[EACH] = _candidate(each.seconds, part)
    try:
        rq = stack.enter_context(rq_fleet(served, "fp32", engine.device))
    except ImportError as error:
        notes.append(f"without rq: {error}")
    else:
        candidates[RQ] = _candidate(rq.seconds, part)
    return candidates


def _candidate(seconds: Callable[[Sequence[str]], float], corpus: Corpus) -> Candidate:
    return Candidate(seconds=partial(seconds, corpus.texts), texts=len(corpus.texts), tokens=corpus.tokens)


def _settings(plan: Plan, corpus: Corpus, engine: OwnEngine) -> dict[str, Any]:
    return {
        "model": MODEL,
        "texts": len(corpus.texts),
        "corpus": corpus.digest,
        "quick": plan.quick,
        "engine": str(engine),
    }
