"""Options of embed jobs in a real worker with the real model, beside the plain library asked for the same."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

from cordwood import EmbedOptions, JobFailed
from cordwood.result import Result
from tests.fleet import Fleet
from tests.redis.test_worker_model import TOLERANCE, mixed_texts

pytestmark = [pytest.mark.redis, pytest.mark.timeout(240)]

ASKED: Final[list[tuple[EmbedOptions, dict[str, Any]]]] = [
    (EmbedOptions(), {}),
    (EmbedOptions(prompt="search: "), {"prompt": "search: "}),
    (EmbedOptions(dim=64), {"truncate_dim": 64, "normalize_embeddings": True}),
    (EmbedOptions(normalize=True), {"normalize_embeddings": True}),
    (EmbedOptions(prompt="a ", dim=128), {"prompt": "a ", "truncate_dim": 128, "normalize_embeddings": True}),
]
"""Options, and what the library is to be asked for."""


def encoded(library: Any, texts: list[str], **asked: Any) -> Any:
    """What the library makes of the texts."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return library.encode(texts, **asked)
    finally:
        torch.set_num_threads(threads)


def test_jobs_with_different_options_share_batches_and_each_gets_what_it_asked_for(
    model_fleet: Fleet, library: Any
) -> None:
    """Within 1e-5 of the library in fp32, all submitted together."""
    texts = mixed_texts(40, seed=7)
    batches = model_fleet.stat("batches")
    ids = [model_fleet.client.submit_many(texts, options=options) for options, _ in ASKED]
    outcomes = [model_fleet.client.wait_many(each, timeout_s=120) for each in ids]
    for found, (options, asked) in zip(outcomes, ASKED, strict=True):
        vectors = np.stack([outcome.vector for outcome in found if isinstance(outcome, Result)])
        expected = encoded(library, texts, **asked)
        assert vectors.shape == expected.shape, options
        assert np.abs(vectors - expected).max() <= TOLERANCE, options
    assert model_fleet.stat("batches") - batches < len(ASKED) * len(texts) / 4


def test_vectors_come_back_in_the_format_that_was_asked_for(model_fleet: Fleet, library: Any) -> None:
    """Through `embed`, many texts a job; bits are the library's but where a number is 0 within the tolerance."""
    texts = mixed_texts(30, seed=8)
    plain = encoded(library, texts)
    half = model_fleet.client.embed(texts, timeout_s=120, options=EmbedOptions(output="float16"))
    assert half.dtype == np.float16
    assert np.abs(half.astype(np.float32) - plain).max() <= 1e-3
    packed = model_fleet.client.embed(texts, timeout_s=120, options=EmbedOptions(output="ubinary"))
    assert packed.dtype == np.uint8
    assert packed.shape == (30, 48)
    wrong = np.unpackbits(packed, axis=1) != (plain > 0)
    assert np.abs(plain[wrong]).max(initial=0.0) <= TOLERANCE
    signed = model_fleet.client.embed(texts, timeout_s=120, options=EmbedOptions(output="binary"))
    assert np.array_equal(signed, (packed.astype(np.int16) - 128).astype(np.int8))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (EmbedOptions(dim=385), "dim 385 is more than the model's 384"),
        (EmbedOptions(prompt_name="nobody"), "prompt_name 'nobody' is not one of the model's"),
        (EmbedOptions(truncation="refuse"), "input 0 has more than the model's 256 tokens"),
    ],
)
def test_what_the_model_cannot_do_fails_the_job_alone(model_fleet: Fleet, options: EmbedOptions, why: str) -> None:
    """With the reason; its batch-mates are done."""
    bad = model_fleet.client.submit("word " * 400, options=options)
    good = model_fleet.client.submit_many(mixed_texts(8, seed=9), options=EmbedOptions(truncation="left"))
    with pytest.raises(JobFailed, match=why) as caught:
        model_fleet.client.wait(bad, timeout_s=60)
    assert caught.value.code == "invalid-input"
    assert all(isinstance(outcome, Result) for outcome in model_fleet.client.wait_many(good, timeout_s=60))
