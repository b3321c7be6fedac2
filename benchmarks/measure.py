"""Timing candidates in turn, and what comes out: medians, spreads and ratios."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from time import perf_counter
from typing import Any, Final

LONGEST_S: Final = 270.0
QUICK_LONGEST_S: Final = 50.0
"""A benchmark has five minutes, a quick one has one; the rest is for stopping what it started."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Repeated measurements of one thing: median, and the tenth and ninetieth percentile."""

    median: float
    p10: float
    p90: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Summarise values; there must be at least one."""
        return cls(statistics.median(values), percentile(values, 0.1), percentile(values, 0.9))


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long a candidate took for the same work, in seconds, and what that makes in texts and tokens."""

    seconds: Spread
    texts: int = 0
    texts_per_s: float = 0.0
    tokens_per_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much to measure: the texts, the rounds at most, the `perf_counter` by which the last round should be over."""

    quick: bool
    device: str
    texts: int
    rounds: int
    ends_s: float

    @classmethod
    def usual(cls, *, quick: bool) -> Plan:
        """For a processor: `LONGEST_S` in all, or `QUICK_LONGEST_S`, counted from now."""
        return cls(
            quick=quick,
            device="auto",
            texts=256 if quick else 1024,
            rounds=2 if quick else 7,
            ends_s=perf_counter() + (QUICK_LONGEST_S if quick else LONGEST_S),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Something to time: `seconds` does the work once and returns how long that took."""

    seconds: Callable[[], float]
    texts: int
    tokens: int

    @classmethod
    def of(cls, call: Callable[[], object], *, texts: int, tokens: int) -> Candidate:
        """Time the whole of a call."""
        return cls(seconds=partial(timed, call), texts=texts, tokens=tokens)


@dataclass(slots=True, kw_only=True)
class Report:
    """One benchmark's outcome. `figures` are flat numbers under names that do not change, to be compared over time."""

    benchmark: str
    settings: dict[str, Any]
    results: dict[str, Timing] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> str:
        """One JSON object: benchmark, machine, settings, results, figures."""
        fields = {
            "benchmark": self.benchmark,
            "machine": machine(),
            "settings": self.settings,
            "results": {name: asdict(timing) for name, timing in self.results.items()},
            "figures": self.figures,
            "notes": self.notes,
        }
        return json.dumps(fields, indent=2)

    def as_text(self) -> str:
        """A table for people."""
        lines = [f"{self.benchmark}: {', '.join(f'{key}={value}' for key, value in self.settings.items())}"]
        for name, timing in self.results.items():
            seconds = timing.seconds
            rate = f"  {timing.texts_per_s:10.0f} texts/s  {timing.tokens_per_s:10.0f} tokens/s"
            shown = rate if timing.texts_per_s else ""
            lines.append(f"  {name:32} {seconds.median:9.4f} s  ({seconds.p10:.4f} to {seconds.p90:.4f}){shown}")
        lines += [f"  {name:32} {value:9.3f}" for name, value in self.figures.items()]
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)


def time_in_turn(
    candidates: Mapping[str, Candidate], plan: Plan, clock: Callable[[], float] = perf_counter
) -> dict[str, list[float]]:
    """Time each candidate once in every round, one after the other; return seconds a token, a list for each.

    In turn, because a machine's speed drifts: what is compared must have met the same weather. There are as many rounds
    as the plan says, but none begins that would not end in the plan's time; at least one there is. Whoever makes a
    candidate warms it up.
    """
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    longest_s = 0.0
    for number in range(plan.rounds):
        began_s = clock()
        if number > 0 and began_s + longest_s > plan.ends_s:
            break
        for name, candidate in candidates.items():
            seconds[name].append(candidate.seconds() / candidate.tokens)
        longest_s = max(longest_s, clock() - began_s)
    return seconds


def timed(call: Callable[[], object], clock: Callable[[], float] = perf_counter) -> float:
    """Return the seconds of a call."""
    began_s = clock()
    call()
    return clock() - began_s


def rates(candidates: Mapping[str, Candidate], per_token: Mapping[str, Sequence[float]]) -> dict[str, Timing]:
    """Return what `time_in_turn` measured as timings, for as many texts as each candidate had."""
    timings: dict[str, Timing] = {}
    for name, values in per_token.items():
        candidate = candidates[name]
        seconds = Spread.of([value * candidate.tokens for value in values])
        timings[name] = Timing(
            seconds=seconds,
            texts=candidate.texts,
            texts_per_s=candidate.texts / seconds.median,
            tokens_per_s=candidate.tokens / seconds.median,
        )
    return timings


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which that share of the others lies; there must be at least one."""
    ordered = sorted(values)
    return ordered[round(share * (len(ordered) - 1))]


def ratio(numerator: Sequence[float], denominator: Sequence[float]) -> float:
    """The median of the ratios of measurements that were made in the same round."""
    return statistics.median(a / b for a, b in zip(numerator, denominator, strict=True))


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    return {"cpu": _cpu_name(), "cores": os.cpu_count(), "python": platform.python_version(), "os": platform.system()}


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as info:  # noqa: PTH123 - a file of the kernel, not of a folder
            names = [line.split(":", 1)[1].strip() for line in info if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor()
