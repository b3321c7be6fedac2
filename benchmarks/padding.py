"""How many cells of padded batches are padding, by the batch former alone: nothing is computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from cordwood_worker.batch import Batch, Row, Tokens
from cordwood_worker.collect import Collector
from cordwood_worker.draft import BatchLimits

AHEAD: Final = 64
TOKENS: Final = 2048
ROWS: Final = 256
"""Limits of a batch on a CPU: the padded path is fastest at 1,024 to 4,096 tokens there."""


def padding_waste(lengths: Sequence[int]) -> float:
    """Return cells that are padding as a share of the real tokens, while 64 batches of rows wait throughout."""
    real = cells = 0
    for batch in _batches(lengths):
        real += batch.real_tokens
        cells += batch.padded_tokens
    return (cells - real) / real


def _batches(lengths: Sequence[int]) -> Iterator[Batch]:
    """Yield a batch whenever 64 batches' worth of rows wait; those that are left at the end are none of a steady flow.

    The bound on bypassing is four times the lookahead, as a worker sets it.
    """
    collector = Collector(BatchLimits(TOKENS, ROWS, 0.0, 4 * AHEAD))
    for number, length in enumerate(lengths):
        collector.add([Row(f"j{number}", 0, Tokens(range(length)), number * 1e-6)])
        if collector.tokens >= AHEAD * TOKENS:
            batch = collector.take(1.0)
            if batch is not None:
                yield batch
