"""Fleets of worker processes for the tests on the real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood import Client
from cordwood.embedded import EmbeddedServer
from cordwood.settings import Settings
from tests.fleet import QUEUE, Fleet, running_fleet


@pytest.fixture(scope="session")
def fleet_client(server: EmbeddedServer) -> Iterator[Client]:
    """One client for all fleets, because closing one takes a second."""
    with Client(server.url, queue=QUEUE, settings=Settings()) as client:
        yield client


@pytest.fixture
def fleet(redis_url: str, fleet_client: Client, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """Workers for this test alone, on the emptied server."""
    with running_fleet(fleet_client, redis_url, tmp_path, request.node) as started:
        yield started
