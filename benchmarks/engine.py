"""`engine`: our path from texts to vectors in one process, against the library, its usual uses, and other engines."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.corpus import Corpus, draw_lengths
from benchmarks.infinity import is_installed, running_infinity
from benchmarks.measure import Candidate, Plan, Report, rates, ratio, time_in_turn
from benchmarks.own_engine import MODEL, OwnEngine, queue_table
from benchmarks.padding import padding_waste
from benchmarks.plain_encode import BATCH, Library
from benchmarks.processes import ChildGone
from benchmarks.products import gemm_share
from cordwood.errors import CordwoodError

OWN: Final = "cordwood"
OWN_FP32: Final = "cordwood fp32"
ENCODE: Final = "encode"
ARRIVAL: Final = "arrival of 32"
ONE_BY_ONE: Final = "one by one"
INFINITY: Final = "infinity-emb"
EXPORTED: Final = ("onnx", "openvino")
LEAST_COSINE: Final = 0.999
"""Who is less like the library in fp32 than this does other work, and is not compared."""
PADDING_TEXTS: Final = 20_000
ARRIVAL_SHARE: Final = 4
ONE_BY_ONE_SHARE: Final = 16
"""The slow rivals take every fourth or sixteenth text by length."""

Vectors = NDArray[np.float32]


@dataclass(slots=True)
class Entrants:
    """Who takes part, by name, the texts, what vectors a few of them must have, and why somebody is missing."""

    corpus: Corpus
    few: Sequence[str]
    expected: Vectors
    candidates: dict[str, Candidate] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, name: str, embed: Callable[[Sequence[str]], Vectors], share: int = 1) -> None:
        """Take in who embeds every `share`-th text, checked and so warmed up; RuntimeError for other vectors."""
        corpus = self.corpus.sample(max(BATCH, len(self.corpus.texts) // share))
        cosine = smallest_cosine(embed(self.few), self.expected)
        if not cosine >= LEAST_COSINE:
            raise RuntimeError(f"{name} gives other vectors than the library: a cosine of {cosine:.4f}")
        self.candidates[name] = Candidate.of(
            partial(embed, corpus.texts), texts=len(corpus.texts), tokens=corpus.tokens
        )


def smallest_cosine(vectors: Vectors, expected: Vectors) -> float:
    """Return the smallest cosine between rows; in half precision the library's own are not quite of length 1."""
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(expected, axis=1)
    return float(((vectors * expected).sum(axis=1) / lengths).min())


def run(*, quick: bool) -> Report:
    """Measure on this machine's usual device."""
    return measure(Plan.usual(quick=quick))


def measure(plan: Plan) -> Report:
    """Load all, time all in turn, and compare."""
    with ExitStack() as stack:
        best = OwnEngine(queue_table(device=plan.device))
        fp32 = best if best.precision == "fp32" else OwnEngine(queue_table(device=best.device, precision="fp32"))
        library = Library("fp32", best.device)
        corpus = best.corpus(plan.texts)
        few = corpus.sample(BATCH).texts
        entrants = Entrants(corpus, few, library.encode(few))
        entrants.add(OWN, best.embed)
        entrants.add(OWN_FP32, fp32.embed)
        _add_library(entrants, library, "fp32")
        if best.precision != "fp32":
            _add_library(entrants, Library(best.precision, best.device), best.precision)
        _add_exported(entrants, best.device)
        _add_infinity(entrants, best, stack)
        report = Report(benchmark="engine", settings=_settings(plan, corpus, best, fp32), notes=entrants.notes)
        _add_shares(report, corpus, best, fp32)
        seconds = time_in_turn(entrants.candidates, plan)
    report.results |= rates(entrants.candidates, seconds)
    report.figures |= compare(seconds, best.precision)
    report.settings["rounds"] = len(seconds[OWN])
    return report


def compare(seconds: Mapping[str, Sequence[float]], precision: str) -> dict[str, float]:
    """Return the figures that are ratios: how many times longer a rival takes for a token; without those who miss."""
    fp32_of, same_of = (partial(_named, precision=each) for each in ("fp32", precision))
    rivals = {
        "vs_encode_fp32": (fp32_of(ENCODE), OWN),
        "vs_encode_same_precision": (same_of(ENCODE), OWN),
        "fp32_vs_encode_fp32": (fp32_of(ENCODE), OWN_FP32),
        "vs_arrival": (fp32_of(ARRIVAL), OWN),
        "vs_arrival_same_precision": (same_of(ARRIVAL), OWN),
        "vs_one_by_one": (fp32_of(ONE_BY_ONE), OWN),
        "vs_one_by_one_same_precision": (same_of(ONE_BY_ONE), OWN),
        **{f"vs_{name}": (name, OWN) for name in EXPORTED},
    }
    figures = {
        figure: ratio(seconds[rival], seconds[own]) for figure, (rival, own) in rivals.items() if rival in seconds
    }
    infinity = [ratio(values, seconds[OWN]) for name, values in seconds.items() if name.startswith(INFINITY)]
    if infinity:
        figures["vs_infinity"] = min(infinity)
    return figures


def _named(rival: str, precision: str) -> str:
    return f"{rival} {precision}"


def _add_library(entrants: Entrants, library: Library, precision: str) -> None:
    entrants.add(_named(ENCODE, precision), library.encode)
    entrants.add(_named(ARRIVAL, precision), partial(library.encode_in_turn, size=BATCH), ARRIVAL_SHARE)
    entrants.add(_named(ONE_BY_ONE, precision), partial(library.encode_in_turn, size=1), ONE_BY_ONE_SHARE)


def _add_exported(entrants: Entrants, device: str) -> None:
    """Take in ONNX Runtime and OpenVINO by our own backends, which run on processors."""
    for backend in EXPORTED if device == "cpu" else ():
        try:
            entrants.add(backend, OwnEngine(queue_table(device=device, backend=backend)).embed)
        except (CordwoodError, ValueError, RuntimeError) as error:
            entrants.notes.append(f"without {backend}: {_first_line(error)}")


def _add_infinity(entrants: Entrants, best: OwnEngine, stack: ExitStack) -> None:
    """Take in infinity-emb in fp32 and in our precision; what is compared is the faster of the two."""
    if not is_installed():
        entrants.notes.append("without infinity-emb: `make bench` builds its environment")
        return
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cwb-")))
    corpus = entrants.corpus
    precisions = tuple(dict.fromkeys(("fp32", best.precision)))
    try:
        infinity = stack.enter_context(running_infinity(corpus.texts, precisions, best.device, folder))
    except (ChildGone, OSError) as error:
        entrants.notes.append(f"without infinity-emb: {_first_line(error)}")
        return
    for precision in precisions:
        entrants.candidates[_named(INFINITY, precision)] = Candidate(
            seconds=partial(infinity.seconds, precision), texts=len(corpus.texts), tokens=corpus.tokens
        )


def _add_shares(report: Report, corpus: Corpus, best: OwnEngine, fp32: OwnEngine) -> None:
    for figure, engine in (("gemm_share_best", best), ("gemm_share_fp32", fp32)):
        share = gemm_share(engine, engine.batches(corpus.texts)[0])
        if share is None:
            report.notes.append(f"without {figure}: backend {engine.backend.spec.backend} shows no linear layers")
        else:
            report.figures[figure] = share
    report.figures["padding_waste_padded_64"] = padding_waste(draw_lengths(PADDING_TEXTS))


def _settings(plan: Plan, corpus: Corpus, best: OwnEngine, fp32: OwnEngine) -> dict[str, Any]:
    return {
        "model": MODEL,
        "texts": len(corpus.texts),
        "mean_tokens": round(corpus.tokens / len(corpus.texts), 1),
        "corpus": corpus.digest,
        "quick": plan.quick,
        "best": str(best),
        "fp32": str(fp32),
    }


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
