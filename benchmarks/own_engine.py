"""Our path in one process: from texts to vectors as a worker goes, without a server.

The one place of the benchmarks that knows what a backend offers beyond its protocol.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from benchmarks.corpus import SPECIAL_TOKENS, Corpus, build_corpus
from cordwood.settings import QueueSettings, Settings
from cordwood_worker.backends import load_backend
from cordwood_worker.batch import Batch, Row
from cordwood_worker.collect import Collector
from cordwood_worker.draft import BatchLimits, packed_cost, padded_cost
from cordwood_worker.hopper import Hopper
from cordwood_worker.prepare import MAX_PER_START

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

MODEL: Final = "sentence-transformers/all-MiniLM-L6-v2"
QUEUE: Final = "embed"
NAMED_BACKENDS: Final = frozenset({"padded", "packed", "onnx", "openvino"})
AHEAD: Final = 64
"""Batches of lookahead by which the bound on bypassing is set: all texts are there from the start."""


def queue_table(*, device: str = "auto", precision: str = "auto", backend: str = "auto") -> dict[str, str | int]:
    """Return the settings of a queue as its TOML table has them; what is `auto` is left to be chosen."""
    table: dict[str, str | int] = {
        "task": "embed",
        "model": MODEL,
        "device": device,
        "precision": precision,
        "backend": backend,
    }
    return {key: value for key, value in table.items() if value != "auto"}


class OwnEngine:
    """A backend, warmed up, and batches as a worker forms them of all the texts there are.

    Raises what `load_backend` raises.
    """

    def __init__(self, table: Mapping[str, str | int]) -> None:
        queue = QueueSettings.model_validate(table)
        budget = Settings(queues={QUEUE: queue}).batch_limits(QUEUE)
        backend = load_backend(queue)
        best_tokens = backend.warm_up(budget).best_tokens
        self.backend: Any = backend  # what is beyond the protocol depends on the backend
        self.packed = backend.spec.packed
        self.limits = BatchLimits(
            max_tokens=min(budget.max_tokens, best_tokens or budget.max_tokens),
            max_rows=budget.max_rows,
            max_wait_s=budget.max_wait_ms / 1000,
            max_bypass=4 * AHEAD,
        )

    def __str__(self) -> str:
        spec = self.backend.spec
        return f"{spec.backend} {spec.precision} on {spec.device}, {self.limits.max_tokens} tokens a batch"

    @property
    def precision(self) -> str:
        """The precision in use."""
        return str(self.backend.spec.precision)

    @property
    def device(self) -> str:
        """The device in use, by torch's name."""
        return str(self.backend.spec.device)

    @property
    def pinned(self) -> dict[str, str | int]:
        """The settings with which a worker runs just this engine, whatever its own warm-up would have chosen."""
        backend = str(self.backend.spec.backend)
        return {
            **queue_table(
                device=self.device, precision=self.precision, backend=backend if backend in NAMED_BACKENDS else "auto"
            ),
            "max_batch_tokens": self.limits.max_tokens,
        }

    def corpus(self, count: int) -> Corpus:
        """Return the benchmarks' texts, their tokens counted by the model's own tokenizer."""

        def word_tokens(word: str) -> int:
            return len(self.backend.tokenise([word])[0].ids) - SPECIAL_TOKENS

        return build_corpus(count, word_tokens)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the texts' vectors, in order; a thread tokenises while batches run, as in a worker."""
        hopper = Hopper(Collector(self.limits, packed_cost if self.packed else padded_cost), perf_counter)
        vectors = np.empty((len(texts), self.backend.spec.dim), np.float32)
        left = len(texts)
        begun: tuple[Batch, Callable[[], NDArray[np.float32]]] | None = None
        with ThreadPoolExecutor(1) as tokenising:
            fed = tokenising.submit(self._feed, texts, hopper)
            while left:
                batch = _next_batch(hopper, fed)
                left -= len(batch.rows)
                following = batch, self._begin(batch)
                _store(begun, vectors)
                begun = following
        _store(begun, vectors)
        return vectors

    def batches(self, texts: Sequence[str]) -> list[Batch]:
        """Return the batches that these texts make when all of them wait."""
        collector = Collector(self.limits, packed_cost if self.packed else padded_cost)
        collector.add(Row("text", index, item, 0.0) for index, item in enumerate(self.backend.tokenise(texts)))
        made: list[Batch] = []
        while (batch := collector.take(0.0, flush=True)) is not None:
            made.append(batch)
        return made

    def _feed(self, texts: Sequence[str], hopper: Hopper) -> None:
        for start in range(0, len(texts), MAX_PER_START):
            tokens = self.backend.tokenise(texts[start : start + MAX_PER_START])
            now_s = perf_counter()
            hopper.put([Row("text", start + place, item, now_s) for place, item in enumerate(tokens)])

    def _begin(self, batch: Batch) -> Callable[[], NDArray[np.float32]]:
        """Begin a batch and return what waits for its vectors; on a CPU they are there already."""
        if getattr(self.backend, "overlaps", False):
            result: Callable[[], NDArray[np.float32]] = self.backend.begin(batch, self.backend.stage(batch))
            return result
        values: NDArray[np.float32] = self.backend.run(batch)
        return partial(np.asarray, values)


def _next_batch(hopper: Hopper, fed: Future[None]) -> Batch:
    """Wait for a batch, or raise what ended the tokenising."""
    while (batch := hopper.take()) is None:
        if fed.done():
            fed.result()
    return batch


def _store(begun: tuple[Batch, Callable[[], NDArray[np.float32]]] | None, vectors: NDArray[np.float32]) -> None:
    if begun is not None:
        batch, result = begun
        vectors[[row.index for row in batch.rows]] = result()
