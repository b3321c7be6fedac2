"""Fleets of worker processes for the tests on the real server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cordwood import Client
from cordwood.embedded import EmbeddedServer
from cordwood.settings import Settings
from tests.fleet import PATIENT, QUEUE, Fleet, running_fleet
from tests.models import MINILM, minilm_folder
from tests.private_server import private_server


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


@pytest.fixture(scope="session")
def model_worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One worker with all-MiniLM-L6-v2 for the whole session, on its own server; it takes seconds to load."""
    with private_server() as server, Client(server.url, queue=QUEUE, settings=Settings()) as client:
        fleet = Fleet(client, server.url, tmp_path_factory.mktemp("model"))
        try:
            fleet.configure({**PATIENT, "max_batch_rows": 64, "max_wait_ms": 200}, model=MINILM, backend="packed")
            fleet.spawn()
            yield fleet
        finally:
            fleet.close()


@pytest.fixture
def model_fleet(model_worker: Fleet, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """The worker with the real model, ready; what it wrote is in the report of a failed test."""
    model_worker.consumer(model_worker.workers[0])
    yield model_worker
    request.node.add_report_section("teardown", "log of the worker with the model", model_worker.workers[0].log)


@pytest.fixture(scope="session")
def library() -> Any:
    """The weights of the worker's model in the plain library."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(minilm_folder()), device="cpu")
