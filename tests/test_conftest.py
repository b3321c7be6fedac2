"""The rules of the suite itself, tried on a suite of a few lines in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHARED = ("conftest.py", "leaks.py")
SKIPPING = """
import pytest
@pytest.mark.skip(reason="no program")
def test_marked(): ...
def test_called():
    pytest.skip("no program")
@pytest.mark.xfail(reason="known")
def test_expected():
    assert 0
"""
LEAVING = """
def test_leaving(redis_client):
    redis_client.set("left", 1)
def test_next(redis_client):
    assert redis_client.dbsize() == 0
"""
SUITE = {
    "test_skipping.py": SKIPPING,
    "test_absent.py": "import pytest\npytest.importorskip('no_such_module_anywhere')\n",
    "test_leaving.py": LEAVING,
    "gpu/test_device.py": SKIPPING,
    "chaos/test_death.py": "def test_death(): ...",
}


def run_suite(folder: Path, environ: Mapping[str, str]) -> str:
    """Run the small suite with this folder's conftest, and return what pytest printed."""
    tests = folder / "tests"
    for name, text in {**SUITE, **{name: (ROOT / "tests" / name).read_text("utf-8") for name in SHARED}}.items():
        (tests / name).parent.mkdir(parents=True, exist_ok=True)
        (tests / name).write_text(text, "utf-8")
    options = ["-q", "-rA", "-p", "no:cacheprovider", "-p", "no:randomly", "--continue-on-collection-errors"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-c", ROOT / "pyproject.toml", "--rootdir", folder, tests],
        env={**os.environ, **environ},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def lenient(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the small suite printed where skips are accepted."""
    return run_suite(tmp_path_factory.mktemp("lenient"), {"CORDWOOD_FAIL_ON_SKIP": ""})


@pytest.fixture(scope="module")
def demanding(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the small suite printed where everything that a test can need is installed."""
    return run_suite(tmp_path_factory.mktemp("demanding"), {"CORDWOOD_FAIL_ON_SKIP": "1"})


def test_a_skip_is_a_skip_where_a_program_may_be_missing(lenient: str) -> None:
    """Two in the plain folder, two in gpu/, and a whole file; nothing fails but the test that leaves a key."""
    assert "FAILED" not in lenient, lenient
    assert "2 passed, 5 skipped, 1 deselected, 2 xfailed, 1 error" in lenient, lenient


def test_a_skip_is_a_failure_where_everything_is_installed(demanding: str) -> None:
    """Marked, called in the test, or of a whole file; an expected failure is no skip."""
    assert "FAILED tests/test_skipping.py::test_called" in demanding, demanding
    assert "CORDWOOD_FAIL_ON_SKIP=1 and this was skipped: Skipped: no program" in demanding
    assert "ERROR tests/test_absent.py" in demanding
    assert "XFAIL tests/test_skipping.py::test_expected" in demanding


def test_without_a_gpu_its_tests_may_skip_everywhere(demanding: str) -> None:
    """No package can bring one."""
    assert "SKIPPED [1] tests/gpu/test_device.py" in demanding, demanding
    assert "FAILED tests/gpu" not in demanding


def test_chaos_runs_only_when_it_is_asked_for(lenient: str) -> None:
    """Its tests take minutes; the folder alone marks them."""
    assert "test_death" not in lenient, lenient


def test_a_key_left_behind_fails_the_test_that_left_it(lenient: str) -> None:
    """And only that one: the next starts on an empty server."""
    assert "left (not one of Cordwood's keys)" in lenient, lenient
    assert "ERROR tests/test_leaving.py::test_leaving" in lenient
    assert "PASSED tests/test_leaving.py::test_next" in lenient
