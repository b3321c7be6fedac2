"""The real model in a real worker gives what the plain library gives for each text alone: case C01 and its kind."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cordwood.result import Result
from tests.fleet import Fleet
from tests.outcomes import await_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

TOLERANCE = 1e-5
BLANKS = ["", "   ", "\t\n", "\u200b"]
WORDS = [
    *("the", "stream", "holds", "one", "entry", "per", "job", "and", "wörker", "東京", "naïve", "😀"),
    *("x1", "#42", "antidisestablishmentarianism", "[SEP]", "..."),
]

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]


def mixed_texts(count: int, seed: int, *, long: int = 0) -> list[str]:
    """Texts of a few words in several scripts, `long` of them over the model's limit, shuffled."""
    rng = random.Random(seed)
    lengths = [int(rng.lognormvariate(1.8, 0.9)) + 1 for _ in range(count - long)] + [300] * long
    rng.shuffle(lengths)
    return [" ".join(rng.choices(WORDS, k=length)) for length in lengths]


def alone(library: Any, texts: Sequence[str]) -> NDArray[np.float32]:
    """What the library makes of each text alone, shape (texts, 384)."""
    import torch

    threads = torch.get_num_threads()
    # On a busy machine threads that wait for each other cost far more than they bring.
    torch.set_num_threads(1)
    try:
        return np.concatenate([library.encode([text]) for text in texts])
    finally:
        torch.set_num_threads(threads)


def through(fleet: Fleet, texts: Sequence[str]) -> NDArray[np.float32]:
    """What the worker makes of the texts, submitted together, one a job, shape (texts, 384)."""
    rows = fleet.stat("rows")
    outcomes = fleet.client.wait_many(fleet.client.submit_many(texts), timeout_s=120)
    await_rows(fleet, rows + len(texts))
    results = [outcome for outcome in outcomes if isinstance(outcome, Result)]
    assert len(results) == len(texts)
    assert {result.outputs.precision for result in results} == {"fp32"}
    return np.stack([result.vector for result in results])


def test_every_result_is_the_librarys_vector_whatever_its_batch_mates_were(model_fleet: Fleet, library: Any) -> None:
    """200 mixed texts in two orders, so that each is batched with others twice."""
    texts = mixed_texts(200, seed=1, long=4)
    expected = alone(library, texts)
    batches, rows = model_fleet.stat("batches"), model_fleet.stat("rows")
    assert np.abs(through(model_fleet, texts) - expected).max() <= TOLERANCE
    order = random.Random(2).sample(range(len(texts)), len(texts))
    again = through(model_fleet, [texts[position] for position in order])
    assert np.abs(again - expected[order]).max() <= TOLERANCE
    assert (model_fleet.stat("rows") - rows) / (model_fleet.stat("batches") - batches) > 4


def test_a_text_alone_in_its_batch_has_the_same_vector(model_fleet: Fleet, library: Any) -> None:
    """Batches of one."""
    texts = mixed_texts(6, seed=3, long=1)
    batches = model_fleet.stat("batches")
    vectors = np.concatenate([through(model_fleet, [text]) for text in texts])
    assert np.abs(vectors - alone(library, texts)).max() <= TOLERANCE
    assert model_fleet.stat("batches") - batches == len(texts)


def test_embed_returns_rows_in_the_order_of_the_texts(model_fleet: Fleet, library: Any) -> None:
    """The convenient call packs many texts into a job."""
    texts = mixed_texts(40, seed=4)
    rows = model_fleet.stat("rows")
    vectors = model_fleet.client.embed(texts, timeout_s=120)
    await_rows(model_fleet, rows + len(texts))
    assert vectors.shape == (40, 384)
    assert vectors.dtype == np.float32
    assert np.abs(vectors - alone(library, texts)).max() <= TOLERANCE


def test_c01_blank_texts_are_done_and_change_nothing_for_their_batch_mates(model_fleet: Fleet, library: Any) -> None:
    """4 blanks among 32 texts, then a batch of blanks: done with finite vectors, the same ones each time."""
    texts = mixed_texts(28, seed=5)
    batch = [*texts[:14], *BLANKS, *texts[14:]]
    batches = model_fleet.stat("batches")
    mixed = through(model_fleet, batch)
    # As many as the budget that the warm-up found best makes of them: too few for the blanks to have been alone.
    assert model_fleet.stat("batches") - batches <= 3
    only_blanks = through(model_fleet, BLANKS)
    assert np.isfinite(mixed).all()
    assert np.isfinite(only_blanks).all()
    assert np.abs(mixed[14:18] - only_blanks).max() <= TOLERANCE
    assert np.abs(mixed - alone(library, batch)).max() <= TOLERANCE
    assert model_fleet.workers[0].running
