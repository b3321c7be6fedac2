"""What every test shares: the real server on a private socket, and the rules that hold for the whole suite."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest
import redis

from cordwood.embedded import EmbeddedServer
from tests.leaks import leaked_keys

# A busy machine is no reason to fail: time is what the limit of each test is for.
hypothesis.settings.register_profile("cordwood", deadline=None, print_blob=True)
hypothesis.settings.load_profile("cordwood")

_TESTS = Path(__file__).parent
_PASSED = pytest.StashKey[bool]()
# These need the server, so their tests belong to the real-server tier.
_SERVER_FIXTURES = {"server", "redis_url", "redis_client"}


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedServer]:
    """A real server for the whole session, on a socket of its own and without an append-only file."""
    folder = Path(tempfile.mkdtemp(prefix="cwt-"))
    try:
        with EmbeddedServer(folder, durable=False, extra=("--enable-debug-command", "local")) as started:
            yield started
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def redis_url(server: EmbeddedServer, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of the real server, emptied before the test and searched for leaked keys after it."""
    client = redis.Redis.from_url(server.url)
    try:
        client.flushall()
        yield server.url
        if request.node.stash.get(_PASSED, False):
            allowed = request.node.get_closest_marker("leaves_jobs") is not None
            leaked = leaked_keys(client, live_jobs_allowed=allowed)
            if leaked:
                pytest.fail("left on the server:\n  " + "\n  ".join(leaked), pytrace=False)
    finally:
        client.close()


@pytest.fixture
def redis_client(redis_url: str) -> Iterator[redis.Redis]:
    """A client of the real server with undecoded replies."""
    client = redis.Redis.from_url(redis_url)
    try:
        yield client
    finally:
        client.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by what they need, so that no test has to remember its tier."""
    for item in items:
        if _TESTS / "chaos" in item.path.parents:
            item.add_marker(pytest.mark.chaos)
        if _TESTS / "gpu" in item.path.parents:
            item.add_marker(pytest.mark.gpu)
        if not _SERVER_FIXTURES.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.redis)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note whether the test passed, and turn a skip into a failure where skips are not accepted."""
    report = yield
    if report.when == "call":
        item.stash[_PASSED] = report.passed
    if report.skipped and not hasattr(report, "wasxfail") and _must_not_skip(item.path):
        _fail(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Turn the skip of a whole file into a failure where skips are not accepted."""
    report = yield
    if report.skipped and _must_not_skip(collector.path):
        _fail(report)
    return report


def _must_not_skip(path: Path) -> bool:
    """Where everything that a test can need is installed, only a missing GPU is a reason to skip."""
    return os.environ.get("CORDWOOD_FAIL_ON_SKIP") == "1" and _TESTS / "gpu" not in path.parents


def _fail(report: pytest.TestReport | pytest.CollectReport) -> None:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
    report.outcome = "failed"
    report.longrepr = f"CORDWOOD_FAIL_ON_SKIP=1 and this was skipped: {reason}"
