"""Case C08: a result depends neither on batch-mates nor on padding, in any precision."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cordwood_worker.backends.pool import BufferPool
from cordwood_worker.backends.selection import Source, choose_engine
from tests.models import minilm_folder
from tests.worker.backends.running import embed
from tests.worker.backends.test_text_backend import WORDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cordwood_worker.backends.text_backend import TextBackend

BATCHES = (1, 8, 32, 64)
LEAST_COSINE = {"bf16": 0.999, "fp16": 0.9999}


def texts_of_all_lengths(count: int, longest: int = 300) -> list[str]:
    """Return texts of 1 to `longest` words; 300 fill the model's 256 tokens."""
    rng = random.Random(8)
    return [" ".join(rng.choices(WORDS, k=1 + (longest - 1) * index // (count - 1))) for index in range(count)]


def in_precision(backend: TextBackend, precision: str, texts: list[str]) -> TextBackend:
    """The same backend in another precision, chosen by these texts, whether or not the machine has it in hardware."""
    rows = backend.tokenise(texts)
    source = Source("m", minilm_folder(), "", rows, backend.engine.run(rows))
    placement = replace(backend.engine.placement, precision=precision)
    engine = choose_engine(source, placement, backend.spec.backend, BufferPool())
    assert engine.placement.precision == precision
    return replace(backend, engine=engine, spec=replace(backend.spec, precision=precision))


def check_batches(backend: TextBackend, expected: NDArray[np.float32], texts: list[str]) -> None:
    """Run the texts in batches of several sizes and two random orders, and compare each with itself alone."""
    for seed, rows in enumerate(BATCHES):
        order = random.Random(seed % 2).sample(range(len(texts)), len(texts))
        actual = embed(backend, [texts[index] for index in order], rows=rows)
        if backend.spec.precision == "fp32":
            assert np.abs(actual - expected[order]).max() <= 1e-5
        else:
            assert (actual * expected[order]).sum(axis=1).min() >= LEAST_COSINE[backend.spec.precision]


def alone(library: Any, texts: list[str]) -> NDArray[np.float32]:
    """Each text by the plain library, in fp32 and by itself."""
    return np.concatenate([library.encode([text]) for text in texts])


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_c08_batch_mates_and_padding_change_nothing(backend: TextBackend, library: Any, precision: str) -> None:
    """A few texts, packed and padded; fewer and shorter in bf16, which some machines only emulate, at 20 tokens/s."""
    texts = texts_of_all_lengths(24) if precision == "fp32" else texts_of_all_lengths(8, longest=40)
    tried = backend if precision == "fp32" else in_precision(backend, precision, texts)
    check_batches(tried, alone(library, texts), texts)


@pytest.mark.chaos
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_c08_in_full(backend: TextBackend, library: Any, precision: str) -> None:
    """200 texts; fp16, which a processor would only emulate, is in tests/gpu."""
    texts = texts_of_all_lengths(200)
    tried = backend if precision == "fp32" else in_precision(backend, precision, texts[::20])
    check_batches(tried, alone(library, texts), texts)


def test_c08_what_stands_in_the_padding_does_not_matter(padded_backend: TextBackend) -> None:
    """Other tokens behind the rows' ends, the mask at 0: the same vectors."""
    rows = padded_backend.tokenise(texts_of_all_lengths(12))
    engine = padded_backend.engine
    expected = engine.run(rows)
    staged = engine.feed.stage(rows)
    ids, mask = staged.features["input_ids"], staged.features["attention_mask"]
    ids[mask == 0] = 2_000
    assert np.abs(engine.begin(staged).result() - expected).max() <= 1e-5
