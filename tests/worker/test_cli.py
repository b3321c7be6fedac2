"""Which server a worker uses, and which queue."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.embedded import EmbeddedServer, find_socket
from cordwood.errors import SettingsError
from cordwood.settings import QueueSettings, Settings
from cordwood_worker.cli import choose_queue, server_url


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """An empty folder with a short name, for a socket."""
    with tempfile.TemporaryDirectory(prefix="cwt-") as folder:
        yield Path(folder)


def test_a_configured_server_is_used_as_it_is(data_dir: Path) -> None:
    """And nothing is started."""
    with server_url(Settings(redis_url="redis://localhost:1", data_dir=data_dir)) as url:
        assert url == "redis://localhost:1"
    assert find_socket(data_dir) is None


def test_without_a_url_a_server_is_started_and_stopped_again(data_dir: Path) -> None:
    """It lives as long as the worker."""
    with server_url(Settings(data_dir=data_dir)) as url:
        assert str(find_socket(data_dir)) in url
    assert find_socket(data_dir) is None


def test_a_second_worker_joins_the_server_that_runs_already(data_dir: Path) -> None:
    """And leaves it running when it ends."""
    with EmbeddedServer(data_dir, durable=False) as server:
        with server_url(Settings(data_dir=data_dir)) as url:
            assert url == server.url
        assert server.running


def test_the_only_queue_is_served_and_of_several_one_must_be_named() -> None:
    """A name that the settings do not have is an error that lists those they have."""
    fault = QueueSettings(model="fault")
    assert choose_queue(Settings(queues={"one": fault}), None) == "one"
    both = Settings(queues={"one": fault, "two": fault})
    assert choose_queue(both, "two") == "two"
    with pytest.raises(SettingsError, match="one, two"):
        choose_queue(both, None)
    with pytest.raises(SettingsError, match="three"):
        choose_queue(both, "three")
