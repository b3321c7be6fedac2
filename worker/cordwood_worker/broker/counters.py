"""Counting batches for the queue's statistics: additions only, sent with the results they belong to."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from cordwood.errors import CordwoodError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cordwood_worker.batch import Batch
    from cordwood_worker.broker.connection import QueueConnection

log = logging.getLogger(__name__)


class Counters:
    """The statistics that a worker adds to, in `stats`.

    For each batch batches, rows, tokens, padded_tokens and compute_us; where it happens oom_halvings, the runs that did
    not fit the device's memory; precision_fallbacks, the workers whose precision gave way to fp32; and non_finite_rows
    and non_finite_saved, the rows that half precision could not compute and those of them that fp32 could.
    """

    def __init__(self, queue: QueueConnection) -> None:
        self._queue = queue
        self._unsent: dict[str, int] = {}

    def add_batch(self, batch: Batch, cells: int, compute_s: float) -> None:
        """Count a batch that was computed, in so many cells: its tokens and the padding."""
        amounts = {
            "batches": 1,
            "rows": len(batch.rows),
            "tokens": batch.real_tokens,
            "padded_tokens": cells,
            "compute_us": round(compute_s * 1e6),
        }
        self.add(amounts)

    def add(self, amounts: Mapping[str, int]) -> None:
        """Count more of these names."""
        for name, amount in amounts.items():
            self._unsent[name] = self._unsent.get(name, 0) + amount

    def flush(self) -> None:
        """Send what was counted; a server that refuses costs nothing but the delay of the numbers."""
        if not self._unsent:
            return
        stats = self._queue.keys.named("stats")
        try:
            self._queue.commands(*(("HINCRBY", stats, name, amount) for name, amount in self._unsent.items()))
        except CordwoodError as error:
            log.debug("counters kept: %s", error)
        else:
            self._unsent.clear()
