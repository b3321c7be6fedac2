"""`fleet`: through Redis with one worker process, against the same engine in process and against naive workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any, Final

from benchmarks.arrival_worker import Kind
from benchmarks.corpus import Corpus, in_groups
from benchmarks.measure import Candidate, Plan, Report, rates, ratio, time_in_turn, timed
from benchmarks.naive_fleets import ArrivalFleet, RqFleet, arrival_fleet, rq_fleet
from benchmarks.own_engine import MODEL, QUEUE, OwnEngine, queue_table
from benchmarks.plain_encode import BATCH
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


@dataclass(frozen=True, slots=True)
class Rivals:
    """The naive workers. They take a share of the texts, as they are slow."""

    arrival: ArrivalFleet
    precisions: Sequence[str]
    rq: RqFleet | None
    notes: list[str]

    @classmethod
    def start(cls, served: Served, stack: ExitStack, engine: OwnEngine) -> Rivals:
        """Start them all; ours has been warmed up, so that they cannot disturb what it measures of itself."""
        device, precisions = engine.device, tuple(dict.fromkeys(("fp32", engine.precision)))
        kinds = [Kind(1, "fp32"), *(Kind(BATCH, each) for each in precisions)]
        arrival = stack.enter_context(arrival_fleet(served, kinds, device))
        try:
            rq = stack.enter_context(rq_fleet(served, "fp32", device))
        except ImportError as error:
            return cls(arrival, precisions, None, [f"without rq: {error}"])
        return cls(arrival, precisions, rq, [])

    def candidates(self, corpus: Corpus) -> dict[str, Candidate]:
        """Wait until they are ready, and return them by name."""
        quarter = corpus.sample(len(corpus.texts) // ARRIVAL_SHARE)
        few = corpus.sample(len(corpus.texts) // EACH_SHARE)
        found: dict[str, Candidate] = {}
        for precision in self.precisions:
            found[f"{ARRIVAL} {precision}"] = self._arrival(Kind(BATCH, precision), quarter)
        found[EACH] = self._arrival(Kind(1, "fp32"), few)
        if self.rq is not None:
            self.rq.await_ready()
            found[RQ] = _candidate(self.rq.seconds, few)
        return found

    def _arrival(self, kind: Kind, corpus: Corpus) -> Candidate:
        self.arrival.await_ready(kind)
        return _candidate(partial(self.arrival.seconds, kind=kind), corpus)


def run(*, quick: bool) -> Report:
    """Measure on this machine's usual device."""
    return measure(Plan.usual(quick=quick))


def measure(plan: Plan) -> Report:
    """Start all, each in a process of its own, time all in turn, and compare."""
    engine = OwnEngine(queue_table(device=plan.device))
    corpus = engine.corpus(plan.texts)
    with ExitStack() as stack:
        served = stack.enter_context(serving(engine.pinned))
        rivals = Rivals.start(served, stack, engine)
        client = stack.enter_context(Client(served.url, queue=QUEUE))
        report = Report(benchmark="fleet", settings=_settings(plan, corpus, engine), notes=rivals.notes)
        candidates = {
            ENGINE: _candidate(partial(timed_embed, engine), corpus),
            ONE: _candidate(partial(through_redis, served, client, 1), corpus),
            MANY: _candidate(partial(through_redis, served, client, BATCH), corpus),
        }
        few = corpus.sample(BATCH).texts
        for warming in (engine.embed, partial(through_redis, served, client, 1)):
            warming(few)
        candidates |= rivals.candidates(corpus)
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
