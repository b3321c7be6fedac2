"""The torch backend gives what the library gives, whatever a text is batched with."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.models import build_bert, queue_settings
from tests.worker.backends.running import embed

if TYPE_CHECKING:
    from pathlib import Path

    from cordwood_worker.backends.padded import PaddedBackend

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


def test_it_says_what_it_serves(backend: PaddedBackend) -> None:
    """The spec names the model's own numbers."""
    spec = backend.spec
    assert (spec.task, spec.dim, spec.max_tokens, spec.precision, spec.device) == ("embed", 384, 256, "fp32", "cpu")
    assert len(spec.fingerprint) == 16
    assert spec.model == "sentence-transformers/all-MiniLM-L6-v2"


def test_vectors_equal_the_librarys_in_batches_of_any_make_up(backend: PaddedBackend, library: Any) -> None:
    """200 mixed texts in batches of 8, each padded to its longest, against `encode`."""
    texts = mixed_texts(200, seed=1, long=1)
    expected = library.encode(texts)
    actual = embed(backend, texts, rows=8)
    assert actual.shape == (200, 384)
    assert actual.dtype == np.float32
    assert np.abs(actual - expected).max() <= TOLERANCE


def test_vectors_are_the_same_alone_and_with_others(backend: PaddedBackend) -> None:
    """A batch-mate's length changes nothing beyond rounding."""
    texts = mixed_texts(24, seed=2)
    assert np.abs(embed(backend, texts, rows=1) - embed(backend, texts)).max() <= TOLERANCE


def test_c01_blank_texts_give_finite_unit_vectors_equal_to_the_librarys(backend: PaddedBackend, library: Any) -> None:
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


def test_a_result_is_not_changed_by_the_next_batch(backend: PaddedBackend) -> None:
    """Outputs have memory of their own."""
    first = embed(backend, ["one", "two"])
    kept = first.copy()
    embed(backend, ["three", "four"])
    assert first.base is None or first.flags.owndata
    assert (first == kept).all()


def test_padding_tokens_written_in_a_text_are_part_of_it(backend: PaddedBackend, library: Any) -> None:
    """Attention follows a row's length, not the padding ID."""
    texts = ["[PAD] [PAD] in front", "a [PAD] between", "a longer neighbour that makes the others padded"]
    assert np.abs(embed(backend, texts) - library.encode(texts)).max() <= TOLERANCE


def test_warming_up_needs_nothing(backend: PaddedBackend) -> None:
    """It only runs a batch."""
    backend.warm_up()


def test_out_of_memory_is_told_as_such(backend: PaddedBackend) -> None:
    """What the device raises reaches the executor by its meaning."""
    from cordwood_worker.backends import DeviceOutOfMemory
    from cordwood_worker.backends.padded import PaddedBackend
    from cordwood_worker.backends.placement import Placement

    def refuse(_features: object) -> None:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:124] . DefaultCPUAllocator: can't allocate memory")

    starved = replace(backend._model, modules=(refuse,))
    with pytest.raises(DeviceOutOfMemory):
        PaddedBackend(starved, Placement("cpu", "fp32"), name="starved", model_fingerprint="")


@pytest.mark.parametrize("pooling", ["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"])
def test_every_pooling_gives_the_librarys_vectors(tmp_path: Path, pooling: str) -> None:
    """A small random BERT without a normalising module, 32 dimensions."""
    from sentence_transformers import SentenceTransformer

    from cordwood_worker.backends.padded import PaddedBackend

    folder = build_bert(tmp_path, pooling=pooling)
    small = PaddedBackend.load(queue_settings(model=str(folder), device="cpu"))
    texts = [*mixed_texts(20, seed=4), *BLANKS]
    assert small.spec.dim == 32
    assert small.spec.max_tokens == 128
    expected = SentenceTransformer(str(folder), device="cpu").encode(texts)
    assert np.abs(embed(small, texts) - expected).max() <= TOLERANCE
