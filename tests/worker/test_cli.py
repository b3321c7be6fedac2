"""Which server a worker uses, and which queue."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.embedded import EmbeddedServer, find_socket
from cordwood.errors import SettingsError
from cordwood.settings import BatchBudget, QueueSettings, Settings
from cordwood_worker.backends import WarmUp
from cordwood_worker.cli import choose_queue, load_apart, server_url
from cordwood_worker.testing import FaultBackend


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


def test_the_model_is_loaded_in_a_thread_that_has_ended_when_the_worker_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever computes leaves a team of OpenMP threads behind, until its own end; the run thread's is to be alone."""
    loaders: list[threading.Thread] = []

    class Backend(FaultBackend):
        def warm_up(self, budget: BatchBudget) -> WarmUp:
            loaders.append(threading.current_thread())
            return super().warm_up(budget)

    def load(_: QueueSettings) -> Backend:
        loaders.append(threading.current_thread())
        return Backend()

    monkeypatch.setattr("cordwood_worker.cli.load_backend", load)
    backend, learned = load_apart(Settings(queues={"one": QueueSettings(model="fault")}), "one")
    assert isinstance(backend, Backend)
    assert learned == WarmUp()
    assert len(loaders) == 2
    assert len(set(loaders)) == 1
    assert not loaders[0].is_alive()


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
