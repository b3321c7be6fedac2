"""A served queue for the tests of what the documents say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood import Client
from cordwood.settings import Settings
from tests.fleet import PATIENT, running_fleet


@pytest.fixture
def served_url(
    redis_url: str, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[str]:
    """The URL of the real server, with a worker that serves the queue `embed` by the fault backend."""
    folder: Path = tmp_path_factory.mktemp("served")
    with (
        Client(redis_url, settings=Settings()) as client,
        running_fleet(client, redis_url, folder, request.node) as fleet,
    ):
        fleet.configure(PATIENT)
        fleet.start()
        yield redis_url
