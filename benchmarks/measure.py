"""Timing candidates in turn, and what comes out: medians, spreads and ratios."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from time import perf_counter
from typing import Any


@dataclass(frozen=True, slots=True)
class Spread:
    """Repeated measurements of one thing: median, and the tenth and ninetieth percentile."""

    median: float
    p10: float
    p90: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Summarise values; there must be at least one."""
        ordered = sorted(values)
        last = len(ordered) - 1
        return cls(statistics.median(ordered), ordered[round(0.1 * last)], ordered[round(0.9 * last)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long a candidate took for the same work, in seconds, and what that makes in texts and tokens."""

    seconds: Spread
    texts_per_s: float = 0.0
    tokens_per_s: float = 0.0


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


def time_in_turn(candidates: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Time each candidate `repeats` times, one after the other in every round, after one round that does not count.

    In turn, because a machine's speed drifts: what is compared must have met the same weather.
    """
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for round_number in range(repeats + 1):
        for name, candidate in candidates.items():
            began_s = perf_counter()
            candidate()
            if round_number > 0:
                seconds[name].append(perf_counter() - began_s)
    return seconds


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
