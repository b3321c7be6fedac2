"""The real model, loaded once, by Cordwood and by the library it must agree with."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.models import MINILM, minilm_folder, queue_settings

if TYPE_CHECKING:
    from cordwood_worker.backends.text_backend import TextBackend


@pytest.fixture(scope="session", autouse=True)
def _offline() -> None:
    """No test asks the hub; set before anything imports its client. One thread, as other tests want the cores too."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def packed_backend(_offline: None) -> TextBackend:
    """all-MiniLM-L6-v2 on the CPU in fp32, without padding."""
    return load_minilm("packed")


@pytest.fixture(scope="session")
def padded_backend(_offline: None) -> TextBackend:
    """The same with padding."""
    return load_minilm("padded")


@pytest.fixture(params=["packed", "padded"])
def backend(request: pytest.FixtureRequest) -> TextBackend:
    """Each of the two in turn."""
    loaded: TextBackend = request.getfixturevalue(f"{request.param}_backend")
    return loaded


def load_minilm(backend: str, precision: str = "fp32") -> TextBackend:
    """Load all-MiniLM-L6-v2 on the CPU."""
    from cordwood_worker.backends.text_backend import TextBackend

    return TextBackend.load(queue_settings(model=MINILM, device="cpu", backend=backend, precision=precision))


@pytest.fixture(scope="session")
def library(_offline: None) -> Any:
    """The same weights in the plain library."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(minilm_folder()), device="cpu")
