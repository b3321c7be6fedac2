"""Tests that need a CUDA device; without one they are skipped, and say so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip all of this folder where torch finds no CUDA device."""
    here = [item for item in items if Path(__file__).parent in item.path.parents]
    if not here:
        return
    import torch

    for item in here:
        item.add_marker(pytest.mark.gpu)
        if not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.fixture(scope="session", autouse=True)
def _offline() -> None:
    """No test asks the hub."""
    os.environ["HF_HUB_OFFLINE"] = "1"
