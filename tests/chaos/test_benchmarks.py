from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from benchmarks.figures import FIGURES, OPTIONAL
from tests.docs.markdown import ROOT


@pytest.mark.parametrize("name", FIGURES)
def test_each_benchmark_runs_and_gives_all_its_figures(name: str) -> None:
    """Quickly, as one JSON object; what is missing can be missing, and a note says why."""
    roots = os.pathsep.join(str(path) for path in (ROOT / "producer", ROOT / "worker", ROOT))
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", name, "--quick", "--json"],
        env={**os.environ, "PYTHONPATH": roots, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["benchmark"] == name
    missing = set(FIGURES[name]) - set(report["figures"])
    assert missing <= OPTIONAL
    assert len(report["notes"]) >= len(missing)
    assert set(report["figures"]) <= set(FIGURES[name])
    assert all(isinstance(value, float) for value in report["figures"].values())
