"""The backend of a text model: a tokenizer and an engine, and what to do when the engine's numbers go wrong."""

from __future__ import annotations

import logging
import os
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cordwood.errors import SettingsError
from cordwood.options import DEFAULT_OPTIONS
from cordwood_worker.backends import DeviceBroken, DeviceOutOfMemory, Spec, WarmUp
from cordwood_worker.backends.check_rows import batch_of, check_rows, typical_batch
from cordwood_worker.backends.faults import device_fault
from cordwood_worker.backends.fingerprint import fingerprint
from cordwood_worker.backends.model_folder import find_model_folder
from cordwood_worker.backends.packing import filled_sizes
from cordwood_worker.backends.placement import choose_placement
from cordwood_worker.backends.pool import BufferPool
from cordwood_worker.backends.selection import Source, choose_engine, plain_engine, shortest_times
from cordwood_worker.backends.sentence_model import load_sentence_model
from cordwood_worker.backends.tokeniser import Tokeniser

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Self

    from numpy.typing import NDArray

    from cordwood.job import Input
    from cordwood.options import EmbedOptions
    from cordwood.settings import BatchBudget, QueueSettings
    from cordwood_worker.backends.engine import Engine
    from cordwood_worker.backends.feed import Staged
    from cordwood_worker.batch import Batch, Tokens

TIMED_BUDGETS: Final = (1024, 2048, 4096, 8192, 16384, 32768, 65536)
NEAR_BEST: Final = 1.05
"""The smallest budget whose time a token is within this of the best is taken: small batches end sooner."""
MOST_COMPILE_S: Final = 5.0
"""Half a second for the sizes up to 2,048 tokens of a small model."""
LONGEST_TIMED_S: Final = 0.2
"""A size whose batch takes this long is the last that is tried: on a CPU larger ones are only slower."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class TextBackend:
    """Serves embed: each row comes out as `SentenceTransformer.encode` gives it for that text alone.

    In fp32 the difference is at most 1e-5, in bf16 and fp16 the cosine is at least 0.9995 and 0.9999, checked at load.
    Blank texts are encoded like any other. Rows that come out as NaN or infinity in half precision are computed again
    in fp32, by a model that `load_exact` loads when that first happens. It works in the process that loaded it alone
    (`loaded_in`): the threads of tokenizers and torch do not survive a fork, and a copy would hang.
    """

    spec: Spec
    tokeniser: Tokeniser
    engine: Engine
    load_exact: Callable[[], Engine]
    counts: Counter[str] = field(default_factory=Counter)
    loaded_in: int = field(default_factory=os.getpid)
    _exact: Engine | None = None

    @classmethod
    def load(cls, queue: QueueSettings) -> Self:
        """Find the model of a queue and load it the way that runs best here; SettingsError if that cannot be."""
        # Unless told otherwise the tokenizer keeps to its own thread: its pool would fight torch's for the cores.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        placement = choose_placement(queue)
        folder = find_model_folder(queue.model, queue.revision)
        pool = BufferPool(pinned=placement.device.startswith("cuda"))

        def load_exact() -> Engine:
            return plain_engine(load_sentence_model(queue.model, folder, placement.exact), placement.exact, pool)

        model = load_sentence_model(queue.model, folder, placement.exact)
        tokeniser = Tokeniser(model.tokenizer, model.prompting, max_tokens=model.max_tokens, pad_id=model.pad_id)
        rows = check_rows(tokeniser, model.max_tokens)
        expected = plain_engine(model, placement.exact, pool).run(rows)
        source = Source(queue.model, folder, fingerprint(folder), rows, expected)
        engine = choose_engine(source, placement, queue.backend, pool)
        spec = Spec(
            task="embed",
            model=queue.model,
            fingerprint=source.fingerprint,
            dim=expected.shape[1],
            max_tokens=model.max_tokens,
            precision=engine.placement.precision,
            device=engine.placement.device,
            backend=engine.name,
            packed=engine.feed.packs,
            normalized=model.normalizes,
        )
        fell_back = Counter(precision_fallbacks=1) if spec.precision != placement.precision else Counter()
        return cls(spec, tokeniser, engine, load_exact, fell_back)

    @property
    def pool(self) -> BufferPool:
        """The buffers that batches are staged in."""
        return self.engine.pool

    @property
    def linears(self) -> Sequence[Any]:
        """The transformer's linear layers as they run; see `Engine`."""
        return self.engine.linears

    @property
    def dtype(self) -> Any:
        """The torch dtype of what the linear layers take."""
        return self.engine.placement.dtype

    def tokenise(self, inputs: Sequence[Input], options: EmbedOptions = DEFAULT_OPTIONS) -> list[Tokens]:
        """Turn texts into tokens, cut as the library does or as asked; ValueError for a pair or a bad option."""
        self._check_process()
        if options.dim is not None and options.dim > self.spec.dim:
            raise ValueError(f"dim {options.dim} is more than the model's {self.spec.dim}")
        return self.tokeniser.tokenise(inputs, options)

    @property
    def overlaps(self) -> bool:
        """Whether the device computes beside the CPU, so that it pays to stage one batch while another runs."""
        return self.spec.device.startswith("cuda")

    def stage(self, batch: Batch) -> Staged:
        """Lay out a batch on the device while another one runs; `begin` takes it, or else it must be released."""
        self._check_process()
        with _told_faults():
            return self.engine.feed.stage([row.tokens for row in batch.rows])

    def begin(self, batch: Batch, staged: Staged) -> Callable[[], NDArray[np.float32]]:
        """Have the device begin a staged batch; return what waits for its outputs, which are those of `run`."""
        with _told_faults():
            running = self.engine.begin(staged)

        def result() -> NDArray[np.float32]:
            with _told_faults():
                return self._repaired(running.result(), batch)

        return result

    def run(self, batch: Batch) -> NDArray[np.float32]:
        """Return one vector a row, shape (rows, dim), fp32 on the CPU, in memory of its own."""
        return self.begin(batch, self.stage(batch))()

    def take_counts(self) -> Mapping[str, int]:
        """Return what happened since the last call, each where it did.

        `precision_fallbacks` is 1 if the model was loaded in fp32 for want of a right way in the chosen precision.
        `non_finite_rows` were computed again in fp32, and `non_finite_saved` of them came out finite.
        """
        counts, self.counts = self.counts, Counter()
        return counts

    def warm_up(self, budget: BatchBudget) -> WarmUp:
        """Run batches of growing size within the budget, and find the size from which on more is not faster.

        Afterwards no batch within that size, nor any single row, makes the pool allocate. A size that does not fit the
        device ends the search; SettingsError if the first does not.
        """
        rows = check_rows(self.tokeniser, self.spec.max_tokens)
        batches = self._timed_batches(rows, budget)
        chosen = self._fastest_size(batches) if len(batches) > 1 else next(iter(batches))
        self._reserve(budget.max_rows, max(chosen, self.spec.max_tokens))
        self._compile(rows, max(chosen, self.spec.max_tokens))
        return WarmUp(best_tokens=chosen)

    def _check_process(self) -> None:
        if os.getpid() != self.loaded_in:
            raise DeviceBroken(f"process {os.getpid()} is a fork of {self.loaded_in}, which loaded the model: spawn it")

    def _timed_batches(self, rows: Sequence[Tokens], budget: BatchBudget) -> dict[int, list[Tokens]]:
        """Return typical batches of growing size, up to the budget or to what takes too long to time again."""
        batches: dict[int, list[Tokens]] = {}
        for tokens in (*(size for size in TIMED_BUDGETS if size < budget.max_tokens), budget.max_tokens):
            batch = typical_batch(rows, tokens, budget.max_rows)
            began = perf_counter()
            try:
                with _told_faults():
                    self.engine.run(batch)
            except DeviceOutOfMemory as error:
                if not batches:
                    raise SettingsError(f"not even {tokens} tokens fit {self.spec.device}: {error}") from error
                _log.warning("model %s: %d tokens do not fit %s", self.spec.model, tokens, self.spec.device)
                break
            batches[tokens] = batch
            if len(batch) == budget.max_rows or perf_counter() - began > LONGEST_TIMED_S:
                break
        return batches

    def _fastest_size(self, batches: Mapping[int, list[Tokens]]) -> int:
        """Time batches in turn, and return the smallest size that is near the best time a token."""
        times = shortest_times({str(size): partial(self.engine.run, batch) for size, batch in batches.items()})
        seconds = {size: times[str(size)] / sum(len(row.ids) for row in batch) for size, batch in batches.items()}
        best = min(seconds.values())
        chosen = next(tokens for tokens, each in seconds.items() if each <= NEAR_BEST * best)
        shown = ", ".join(f"{tokens}: {1e6 * each:.1f}" for tokens, each in seconds.items())
        _log.info("model %s: batches of %d tokens are best (us a token by size: %s)", self.spec.model, chosen, shown)
        return chosen

    def _compile(self, rows: Sequence[Tokens], most: int) -> None:
        """Run a packed batch of each size that there is, so that none is compiled while jobs wait.

        What does not fit into `MOST_COMPILE_S` is left to the first batches of that size: a large model takes minutes.
        """
        ends = perf_counter() + MOST_COMPILE_S
        for tokens in filled_sizes(most) if self.spec.packed and self.spec.device == "cpu" else ():
            if perf_counter() < ends:
                self.engine.run(batch_of(rows, tokens))

    def _reserve(self, rows: int, tokens: int) -> None:
        self.pool.clear()
        self.engine.feed.reserve(rows, tokens)
        with self.pool.lease((rows + 1, self.spec.dim), self.engine.placement.exact.dtype):
            pass

    def _repaired(self, values: NDArray[np.float32], batch: Batch) -> NDArray[np.float32]:
        """Compute rows that are not finite again in fp32; what is not finite then either is left to the executor."""
        finite = np.isfinite(values).all(axis=1)
        if self.spec.precision == "fp32" or finite.all():
            return values
        if self._exact is None:
            _log.warning(
                "model %s: %s gave NaN or infinity, loading it in fp32 too", self.spec.model, self.spec.precision
            )
            self._exact = self.load_exact()
        wrong = np.flatnonzero(~finite)
        values[wrong] = self._exact.run([batch.rows[index].tokens for index in wrong.tolist()])
        self.counts["non_finite_rows"] += len(wrong)
        self.counts["non_finite_saved"] += int(np.isfinite(values[wrong]).all(axis=1).sum())
        return values


@contextmanager
def _told_faults() -> Iterator[None]:
    """Turn what the device raises into DeviceOutOfMemory or DeviceBroken; let a row's own faults through."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        fault = device_fault(error)
        if fault is None:
            raise
        raise fault from error
