"""The real model, loaded once, by Cordwood and by the library it must agree with."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.models import MINILM, minilm_folder, queue_settings

if TYPE_CHECKING:
    from cordwood_worker.backends.padded import PaddedBackend


@pytest.fixture(scope="session", autouse=True)
def _offline() -> None:
    """No test asks the hub; set before anything imports its client. One thread, as other tests want the cores too."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def backend(_offline: None) -> PaddedBackend:
    """all-MiniLM-L6-v2 on the CPU."""
    from cordwood_worker.backends.padded import PaddedBackend

    return PaddedBackend.load(queue_settings(model=MINILM, device="cpu"))


@pytest.fixture(scope="session")
def library(_offline: None) -> Any:
    """The same weights in the plain library."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(minilm_folder()), device="cpu")
