"""The process of `memory`: `python -m benchmarks.long_run BATCHES SECONDS` runs batches of random shapes.

It prints one JSON object. The largest shape is what lets all batches end in the given seconds on this machine, at most
the size that the warm-up chose.
"""

from __future__ import annotations

import json
import random
import resource
import sys
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from benchmarks.corpus import LONGEST, SEED, SHORTEST
from benchmarks.own_engine import OwnEngine, queue_table
from cordwood_worker.batch import Batch, Row, Tokens

SETTLED_AFTER: Final = 50
SPEED_BATCHES: Final = 5
LEAST_TOKENS: Final = 2 * LONGEST
_PAGE_BYTES: Final = resource.getpagesize()
_STATM: Final = Path("/proc/self/statm")
_MB: Final = 2**20


def main() -> None:
    """Run and report."""
    batches, seconds = int(sys.argv[1]), float(sys.argv[2])
    print(json.dumps(run_batches(OwnEngine(queue_table()), batches, seconds)))


def run_batches(engine: OwnEngine, batches: int, seconds: float) -> dict[str, Any]:
    """Run batches and return the resident memory after the first 50, at the end and at its peak, in MB.

    With it the pool's hits and misses since the 50th batch, where the backend has a pool.
    """
    draw = random.Random(SEED)
    most = _largest(engine, draw, seconds / batches)
    settled_mb, before = 0.0, _pool_counts(engine)
    for number in range(batches):
        engine.backend.run(random_batch(draw, most, engine.limits.max_rows))
        if number + 1 == SETTLED_AFTER:
            settled_mb, before = rss_mb(), _pool_counts(engine)
    report: dict[str, Any] = {
        "engine": str(engine),
        "most_tokens": most,
        "settled_mb": settled_mb,
        "end_mb": rss_mb(),
        "peak_mb": peak_mb(),
    }
    after = _pool_counts(engine)
    if before is not None and after is not None:
        report["pool_hits"], report["pool_misses"] = (now - then for now, then in zip(after, before, strict=True))
    return report


def random_batch(draw: random.Random, most_tokens: int, most_rows: int) -> Batch:
    """Return rows of one random length, give or take a half, as many as fit a random share of the most tokens."""
    room = draw.randint(LONGEST, most_tokens)
    middle = draw.randint(SHORTEST, LONGEST)
    lengths: list[int] = []
    while len(lengths) < most_rows:
        length = min(LONGEST, max(SHORTEST, round(middle * draw.uniform(0.5, 1.5))))
        room -= length
        if lengths and room < 0:
            break
        lengths.append(length)
    rows = (Row("long-run", index, Tokens([1000 + index] * length), 0.0) for index, length in enumerate(lengths))
    return Batch(tuple(rows))


def rss_mb() -> float:
    """Return the resident memory of this process; its peak where the system does not tell."""
    if _STATM.is_file():
        return int(_STATM.read_text("ascii").split()[1]) * _PAGE_BYTES / _MB
    return peak_mb()


def peak_mb() -> float:
    """Return the largest resident memory that this process has had; macOS counts it in bytes, Linux in KB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (_MB if sys.platform == "darwin" else 1024)


def _largest(engine: OwnEngine, draw: random.Random, batch_s: float) -> int:
    """Return the most tokens of a batch for which the mean batch takes no longer than `batch_s`."""
    full = engine.limits.max_tokens
    batches = [random_batch(draw, full, engine.limits.max_rows) for _ in range(SPEED_BATCHES)]
    began_s = perf_counter()
    for batch in batches:
        engine.backend.run(batch)
    per_token_s = (perf_counter() - began_s) / sum(batch.real_tokens for batch in batches)
    return min(full, max(LEAST_TOKENS, round(2 * batch_s / per_token_s)))


def _pool_counts(engine: OwnEngine) -> tuple[int, int] | None:
    pool = getattr(engine.backend, "pool", None)
    if pool is None:
        return None
    statistics = pool.statistics()
    return statistics.hits, statistics.misses


if __name__ == "__main__":
    main()
