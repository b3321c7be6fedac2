"""Fleets of worker processes to be killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood import Client
from cordwood.settings import Settings
from tests.fleet import QUEUE, Fleet, running_fleet


@pytest.fixture
def fleet(redis_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """Workers for this test alone, on the emptied server."""
    with (
        Client(redis_url, queue=QUEUE, settings=Settings()) as client,
        running_fleet(client, redis_url, tmp_path, request.node) as started,
    ):
        yield started
