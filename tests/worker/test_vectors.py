"""Vectors as they were asked for, beside what the library makes of the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cordwood.options import OUTPUTS, EmbedOptions
from cordwood_worker.vectors import as_asked


@pytest.fixture(scope="module")
def values() -> NDArray[np.float32]:
    """Vectors of any length, one of them all zeros."""
    found = np.random.default_rng(1).normal(size=(20, 33)).astype(np.float32)
    found[3] = 0.0
    return found


def test_without_options_vectors_are_the_models_own(values: NDArray[np.float32]) -> None:
    """Not even copied."""
    assert as_asked(values, EmbedOptions(), normalized=False) is values


@pytest.mark.parametrize("normalized", [False, True])
def test_a_shorter_vector_is_of_unit_length_if_the_model_gives_such(
    values: NDArray[np.float32], normalized: bool
) -> None:
    """Else it is cut and nothing more."""
    cut = as_asked(values, EmbedOptions(dim=10), normalized=normalized)
    assert cut.shape == (20, 10)
    lengths = np.linalg.norm(cut, axis=1)
    if normalized:
        assert np.delete(lengths, 3) == pytest.approx(1.0, abs=1e-6)
        assert lengths[3] == 0.0
    else:
        assert np.array_equal(cut, values[:, :10])


def test_a_dim_beyond_the_models_changes_nothing(values: NDArray[np.float32]) -> None:
    """Whoever prepares the job refuses it before."""
    assert as_asked(values, EmbedOptions(dim=33), normalized=True) is values


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("dim", [None, 16])
def test_outputs_are_those_of_the_library(values: NDArray[np.float32], output: str, dim: int | None) -> None:
    """Normalised, shortened and quantised as sentence-transformers does it."""
    import torch
    from sentence_transformers.util import quantize_embeddings

    kept = torch.from_numpy(values[:, :dim].copy())
    expected: Any = torch.nn.functional.normalize(kept, dim=1).numpy()
    if output in {"binary", "ubinary"}:
        library: Any = quantize_embeddings
        expected = library(expected, output)
    found = as_asked(values, EmbedOptions(dim=dim, normalize=True, output=output), normalized=False)
    assert found.dtype == EmbedOptions(output=output).dtype
    assert found.shape == (20, EmbedOptions(dim=dim, output=output).width(33))
    np.testing.assert_allclose(found, expected.astype(found.dtype), atol=1e-6 if output == "float32" else 1e-3)
