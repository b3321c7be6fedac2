"""Fleets of worker processes for the tests on the real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet import Fleet, running_fleet


@pytest.fixture
def fleet(redis_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """Workers for this test alone, on the emptied server."""
    with running_fleet(redis_url, tmp_path, request.node) as started:
        yield started
