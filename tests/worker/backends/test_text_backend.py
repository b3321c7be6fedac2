"""The torch backend gives what the library gives, whatever a text is batched with."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cordwood.errors import SettingsError
from cordwood.settings import BatchBudget
from cordwood_worker.backends import DeviceBroken, DeviceOutOfMemory
from cordwood_worker.backends.text_backend import TextBackend
from cordwood_worker.batch import Tokens
from tests.models import build_bert, queue_settings
from tests.worker.backends.running import embed, make_batch

if TYPE_CHECKING:
    from pathlib import Path

    from cordwood_worker.backends.engine import Engine

TOLERANCE = 1e-5
BLANKS = ["", "   ", "\t\n", "\u200b"]
WORDS = [
    *("the", "stream", "holds", "one", "entry", "per", "job", "and", "wörker", "東京", "naïve", "😀"),
    *("x1", "#42", "antidisestablishmentarianism", "[SEP]", "..."),
]


def mixed_texts(count: int, seed: int, *, long: int = 0) -> list[str]:
    """Return texts of a few tokens in several scripts, `long` of them over the model's limit, shuffled."""
    rng = random.Random(seed)
    lengths = [int(rng.lognormvariate(1.3, 0.7)) + 1 for _ in range(count - long)] + [300] * long
    rng.shuffle(lengths)
    return [" ".join(rng.choices(WORDS, k=length)) for length in lengths]


def test_it_says_what_it_serves(backend: TextBackend) -> None:
    """The spec names the model's own numbers."""
    spec = backend.spec
    assert (spec.task, spec.dim, spec.max_tokens, spec.precision, spec.device) == ("embed", 384, 256, "fp32", "cpu")
    assert len(spec.fingerprint) == 16
    assert spec.model == "sentence-transformers/all-MiniLM-L6-v2"


def test_vectors_equal_the_librarys_in_batches_of_any_make_up(backend: TextBackend, library: Any) -> None:
    """200 mixed texts in batches of 8, each padded to its longest, against `encode`."""
    texts = mixed_texts(200, seed=1, long=1)
    expected = library.encode(texts)
    actual = embed(backend, texts, rows=8)
    assert actual.shape == (200, 384)
    assert actual.dtype == np.float32
    assert np.abs(actual - expected).max() <= TOLERANCE


def test_vectors_are_the_same_alone_and_with_others(backend: TextBackend) -> None:
    """A batch-mate's length changes nothing beyond rounding."""
    texts = mixed_texts(24, seed=2)
    assert np.abs(embed(backend, texts, rows=1) - embed(backend, texts)).max() <= TOLERANCE


def test_c01_blank_texts_give_finite_unit_vectors_equal_to_the_librarys(backend: TextBackend, library: Any) -> None:
    """Blanks are encoded like any other text, beside others and among themselves."""
    normal = mixed_texts(28, seed=3)
    mixed = embed(backend, [*normal[:14], *BLANKS, *normal[14:]])
    only_blanks = embed(backend, BLANKS)
    assert np.isfinite(mixed).all()
    assert np.abs(np.linalg.norm(mixed, axis=1) - 1).max() <= TOLERANCE
    assert np.abs(only_blanks - library.encode(BLANKS)).max() <= TOLERANCE
    assert np.abs(mixed[14:18] - only_blanks).max() <= TOLERANCE
    alone = np.concatenate([library.encode([text]) for text in normal])
    assert np.abs(np.delete(mixed, range(14, 18), axis=0) - alone).max() <= TOLERANCE


def test_a_result_is_not_changed_by_the_next_batch(backend: TextBackend) -> None:
    """Outputs have memory of their own."""
    first = embed(backend, ["one", "two"])
    kept = first.copy()
    embed(backend, ["three", "four"])
    assert first.base is None or first.flags.owndata
    assert (first == kept).all()


def test_padding_tokens_written_in_a_text_are_part_of_it(backend: TextBackend, library: Any) -> None:
    """Attention follows a row's length, not the padding ID."""
    texts = ["[PAD] [PAD] in front", "a [PAD] between", "a longer neighbour that makes the others padded"]
    assert np.abs(embed(backend, texts) - library.encode(texts)).max() <= TOLERANCE


def test_warming_up_finds_a_size_of_batches_within_the_budget(backend: TextBackend) -> None:
    """And afterwards the pool has what a batch of that size needs."""
    learned = backend.warm_up(BatchBudget(max_tokens=2048, max_rows=64, max_wait_ms=2.0))
    assert learned.best_tokens in {1024, 2048}


def test_a_thousand_random_batches_after_the_warm_up_allocate_nothing(backend: TextBackend) -> None:
    """Within the budget every lease is served from the pool; a single row may be as long as the model allows."""
    learned = backend.warm_up(BatchBudget(max_tokens=1024, max_rows=16, max_wait_ms=2.0))
    before = backend.pool.statistics()
    rng = random.Random(5)
    for _ in range(1_000):
        longest = rng.randint(1, backend.spec.max_tokens)
        count = max(1, min(16, learned.best_tokens // longest))
        rows = [Tokens(ids=[7] * rng.randint(1, longest)) for _ in range(count - 1)] + [Tokens(ids=[7] * longest)]
        backend.engine.feed.stage(rows).release()
    after = backend.pool.statistics()
    assert after.misses == before.misses
    assert after.hits > before.hits + 1_000
    assert after.leased_bytes == 0


def test_what_the_model_is_given_lies_in_the_pool(backend: TextBackend) -> None:
    """On the CPU nothing is copied once more on the way from the staging buffers to the model."""
    seen: list[int] = []

    def note(_module: object, _arguments: object, features: dict[str, Any]) -> None:
        seen.append(features["input_ids"].data_ptr())

    transformer: Any = backend.engine.modules[0]
    handle = transformer.auto_model.embeddings.register_forward_pre_hook(note, with_kwargs=True)
    try:
        embed(backend, mixed_texts(8, seed=6))
    finally:
        handle.remove()
    assert len(seen) == 1
    assert backend.pool.owns(seen[0])


def test_buffers_are_returned_when_the_model_raises(backend: TextBackend) -> None:
    """An error in mid-batch costs the pool nothing."""

    def refuse(_features: object) -> dict[str, Any]:
        raise ValueError("no")

    broken = replace(backend, engine=replace(backend.engine, modules=(refuse,)))
    with pytest.raises(ValueError, match="no"):
        embed(broken, ["one", "two"])
    assert backend.pool.statistics().leased_bytes == 0


def test_out_of_memory_is_told_as_such(backend: TextBackend) -> None:
    """What the device raises reaches the executor by its meaning."""

    def refuse(_features: object) -> dict[str, Any]:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:124] . DefaultCPUAllocator: can't allocate memory")

    starved = replace(backend, engine=replace(backend.engine, modules=(refuse,)))
    with pytest.raises(DeviceOutOfMemory):
        embed(starved, ["one"])


def test_a_warm_up_stops_growing_where_the_device_is_full(backend: TextBackend) -> None:
    """The sizes that fit are enough to serve; if none does, the settings are at fault."""
    first, *rest = backend.engine.modules

    def fill(most: int) -> TextBackend:
        def run(features: dict[str, Any]) -> dict[str, Any]:
            if features["input_ids"].numel() > most:
                raise RuntimeError("[enforce fail at alloc_cpu.cpp:124] . DefaultCPUAllocator: can't allocate memory")
            return first(features)

        return replace(backend, engine=replace(backend.engine, modules=(run, *rest)))

    budget = BatchBudget(max_tokens=4096, max_rows=256, max_wait_ms=2.0)
    assert fill(1_500).warm_up(budget).best_tokens == 1024
    with pytest.raises(SettingsError, match="not even 1024 tokens fit cpu"):
        fill(500).warm_up(budget)


def test_rows_that_are_not_finite_in_half_precision_are_computed_again_in_fp32(backend: TextBackend) -> None:
    """Those rows alone, by a model that is loaded then, and counted."""
    texts = mixed_texts(6, seed=8)
    expected = embed(backend, texts)

    def spoil(features: dict[str, Any]) -> dict[str, Any]:
        features["sentence_embedding"][[1, 4]] = float("nan")
        return features

    loads: list[int] = []

    def load_exact() -> Engine:
        loads.append(1)
        return backend.engine

    half = replace(
        backend,
        spec=replace(backend.spec, precision="bf16"),
        engine=replace(backend.engine, modules=(*backend.engine.modules, spoil)),
        load_exact=load_exact,
        counts=Counter(),
    )
    for _ in range(2):
        assert np.abs(embed(half, texts) - expected).max() <= TOLERANCE
    assert len(loads) == 1
    assert half.take_counts() == {"non_finite_rows": 4, "non_finite_saved": 4}
    assert half.take_counts() == {}


@pytest.mark.parametrize("layout", ["packed", "padded"])
@pytest.mark.parametrize("pooling", ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"])
def test_every_pooling_gives_the_librarys_vectors(tmp_path: Path, pooling: str, layout: str) -> None:
    """A small random BERT without a normalising module, 32 dimensions."""
    from sentence_transformers import SentenceTransformer

    folder = build_bert(tmp_path, pooling=pooling)
    small = TextBackend.load(queue_settings(model=str(folder), device="cpu", precision="fp32", backend=layout))
    texts = [*mixed_texts(20, seed=4), *BLANKS]
    assert small.spec.dim == 32
    assert small.spec.max_tokens == 128
    expected = SentenceTransformer(str(folder), device="cpu").encode(texts)
    assert np.abs(embed(small, texts) - expected).max() <= TOLERANCE


def test_c20_a_forked_copy_of_a_backend_is_broken(backend: TextBackend) -> None:
    """It ends its process, and acknowledges nothing: tokenizer and torch would hang in it."""
    copy = replace(backend, loaded_in=backend.loaded_in - 1)
    with pytest.raises(DeviceBroken, match="is a fork of"):
        copy.tokenise(["text"])
    with pytest.raises(DeviceBroken, match="is a fork of"):
        copy.run(make_batch(backend, ["text"]))
