"""On a CUDA device: the library's vectors in every precision, pinned buffers, overlap, and memory that comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cordwood.settings import BatchBudget
from cordwood_worker.backends import OverlappingBackend
from cordwood_worker.backends.attention import VariableLengthAttention
from cordwood_worker.backends.text_backend import TextBackend
from tests.models import MINILM, minilm_folder, queue_settings
from tests.worker.backends.running import embed, make_batch
from tests.worker.backends.test_c08 import texts_of_all_lengths

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEAST_COSINE = {"fp32": 0.9999999, "bf16": 0.999, "fp16": 0.9999}


@pytest.fixture(scope="module")
def alone() -> NDArray[np.float32]:
    """Each text by the plain library on the CPU in fp32, by itself."""
    from sentence_transformers import SentenceTransformer

    library = SentenceTransformer(str(minilm_folder()), device="cpu")
    return np.concatenate([library.encode([text]) for text in texts_of_all_lengths(60)])


def load(precision: str, backend: str = "packed") -> TextBackend:
    """MiniLM on the first device."""
    return TextBackend.load(queue_settings(model=MINILM, device="cuda:0", precision=precision, backend=backend))


@pytest.mark.parametrize("backend", ["packed", "padded"])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_c08_vectors_are_the_librarys_in_batches_of_any_size(
    alone: NDArray[np.float32], precision: str, backend: str
) -> None:
    """Packed and padded, to the limits of each precision."""
    loaded = load(precision, backend)
    assert loaded.spec.precision == precision
    texts = texts_of_all_lengths(60)
    for rows in (1, 8, 64):
        actual = embed(loaded, texts, rows=rows)
        cosines = (actual * alone).sum(axis=1) / np.linalg.norm(actual, axis=1) / np.linalg.norm(alone, axis=1)
        assert cosines.min() >= LEAST_COSINE[precision]


def test_half_precision_uses_variable_length_attention() -> None:
    """And its buffers are pinned."""
    loaded = load("bf16")
    staged = loaded.engine.feed.stage(loaded.tokenise(["one", "two words"]))
    try:
        assert isinstance(staged.features["packing"], VariableLengthAttention)
        assert staged.features["input_ids"].is_cuda
        assert staged.ready is not None
    finally:
        staged.release()
    lease = loaded.pool.lease((16,), loaded.engine.placement.exact.dtype)
    assert lease.tensor.is_pinned()
    lease.release()


def test_batches_that_overlap_keep_their_own_results(alone: NDArray[np.float32]) -> None:
    """The next one is staged and begun before the last is fetched."""
    loaded = load("fp32")
    assert isinstance(loaded, OverlappingBackend)
    assert loaded.overlaps
    texts = texts_of_all_lengths(60)
    batches = [make_batch(loaded, texts[start : start + 10]) for start in range(0, 60, 10)]
    waiting: list[Any] = []
    outputs: list[NDArray[np.float32]] = []
    for batch in batches:
        waiting.append(loaded.begin(batch, loaded.stage(batch)))
        if len(waiting) == 2:
            outputs.append(waiting.pop(0)())
    outputs.append(waiting.pop()())
    assert (np.concatenate(outputs) * alone).sum(axis=1).min() >= LEAST_COSINE["fp32"]
    assert loaded.pool.statistics().leased_bytes == 0


def test_after_the_warm_up_batches_allocate_nothing_on_the_host() -> None:
    """Nor does the device's allocator grow."""
    import torch

    loaded = load("bf16")
    loaded.warm_up(BatchBudget(max_tokens=16_384, max_rows=256, max_wait_ms=2.0))
    texts = texts_of_all_lengths(60)
    embed(loaded, texts)
    misses, reserved = loaded.pool.statistics().misses, torch.cuda.memory_reserved()
    for rows in (3, 17, 60, 29):
        embed(loaded, texts, rows=rows)
    assert loaded.pool.statistics().misses == misses
    assert torch.cuda.memory_reserved() <= 1.1 * reserved
