"""What an application gets that installs Cordwood without extras."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cordwood import Client
from tests.fleet import PATIENT, running_fleet
from tests.packaging.conftest import ROOT

UNREACHABLE = ("connection error", "failed to establish", "temporary failure", "could not find a version")

EMBEDS = """
import importlib.util, sys
import cordwood
assert importlib.util.find_spec("torch") is None, "torch is installed here"
assert "torch" not in sys.modules
with cordwood.Client(sys.argv[1]) as client:
    vectors = client.embed(["one text", "another"], timeout_s=60)
print(vectors.shape, vectors.dtype, cordwood.__file__)
"""


@pytest.fixture(scope="module")
def light_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an empty environment into which the wheel was installed, without extras."""
    folder = tmp_path_factory.mktemp("light")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    constraints = str(ROOT / "constraints.txt")
    install = [str(python), "-m", "pip", "install", "--quiet", "--no-compile", "-c", constraints, str(wheel)]
    done = subprocess.run(install, check=False, capture_output=True, text=True)
    if done.returncode != 0 and any(sign in done.stderr.lower() for sign in UNREACHABLE):
        pytest.skip("no package index can be reached to install the light package's four dependencies")
    assert done.returncode == 0, done.stderr
    return python


@pytest.mark.timeout(240)
def test_the_light_package_embeds_through_a_running_worker_without_torch(
    light_python: Path, redis_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Its client needs the server's URL and nothing else."""
    with Client(redis_url) as client, running_fleet(client, redis_url, tmp_path, request.node) as fleet:
        fleet.configure(PATIENT)
        fleet.start()
        command = [str(light_python), "-I", "-c", EMBEDS, redis_url]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("(2, 8) float32 ")
    assert str(light_python.parent.parent) in done.stdout


@pytest.mark.timeout(240)
def test_the_light_package_brings_the_command_line(light_python: Path) -> None:
    """And says its version."""
    command = [str(light_python.parent / "cordwood"), "--version"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("cordwood, version ")
