"""Which server a worker uses, and which queue."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cordwood.embedded import EmbeddedServer, find_socket
from cordwood.errors import SettingsError
from cordwood.settings import BatchBudget, QueueSettings, Settings
from cordwood_worker.backends import WarmUp
from cordwood_worker.cli import choose_queues, load_apart, server_url
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
    fault = QueueSettings(model="fault")
    one, two = load_apart(Settings(queues={"one": fault, "two": fault}), ["one", "two"])
    assert isinstance(one.backend, Backend)
    assert (one.queue, one.best_tokens, two.queue) == ("one", 0, "two")
    assert len(loaders) == 4
    assert len(set(loaders)) == 1
    assert not loaders[0].is_alive()


def test_all_queues_are_served_or_those_that_are_named() -> None:
    """Each once; a name that the settings do not have is an error that lists those they have, and so is none at all."""
    fault = QueueSettings(model="fault")
    both = Settings(queues={"one": fault, "two": fault})
    assert choose_queues(both, ()) == ["one", "two"]
    assert choose_queues(both, ("two", "two")) == ["two"]
    with pytest.raises(SettingsError, match="three"):
        choose_queues(both, ("one", "three"))
    with pytest.raises(SettingsError, match="no queue"):
        choose_queues(Settings(queues={}), ())


def test_queues_on_several_devices_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their batches would wait for each other for nothing."""

    def load(queue: QueueSettings) -> FaultBackend:
        backend = FaultBackend()
        backend._spec = replace(backend.spec, device=queue.device)
        return backend

    monkeypatch.setattr("cordwood_worker.cli.load_backend", load)
    queues = {name: QueueSettings(model="fault", device=device) for name, device in (("a", "cpu"), ("b", "cuda:0"))}
    with pytest.raises(SettingsError, match="'b': 'cuda:0'"):
        load_apart(Settings(queues=queues), ["a", "b"])


@pytest.mark.parametrize("error", [MemoryError("out"), RuntimeError("CUDA error: out of memory")])
def test_a_model_that_does_not_fit_beside_the_others_is_named(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """With its queue and those before it; any other error is itself."""
    fault = QueueSettings(model="fault")
    settings = Settings(queues={"one": fault, "two": fault.model_copy(update={"model": "large"})})

    def load(queue: QueueSettings) -> FaultBackend:
        if queue.model == "large":
            raise error
        return FaultBackend()

    monkeypatch.setattr("cordwood_worker.cli.load_backend", load)
    with pytest.raises(SettingsError, match=r"'large' of queue two does not fit the memory beside one: .*out"):
        load_apart(settings, ["one", "two"])
    error = ValueError("something else")
    with pytest.raises(ValueError, match="something else"):
        load_apart(settings, ["one", "two"])
