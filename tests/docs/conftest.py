"""A served queue for the tests of what the documents say."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread

import pytest

from cordwood.settings import QueueSettings, Settings
from cordwood_worker.testing import FaultBackend
from cordwood_worker.worker import Worker

STOP_S = 20.0


@pytest.fixture
def served_url(redis_url: str) -> Iterator[str]:
    """The URL of the real server, with a worker that serves the queue `embed` by the fault backend."""
    settings = Settings(drain_s=1.0, queues={"embed": QueueSettings(model="fault")})
    worker = Worker(settings, "embed", FaultBackend(), redis_url)
    thread = Thread(target=worker.run, name="served")
    thread.start()
    try:
        yield redis_url
    finally:
        worker.stop()
        thread.join(STOP_S)
        assert not thread.is_alive()
