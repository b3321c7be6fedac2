from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import pytest

from benchmarks.gpu import NAMES, SECONDS_EACH, cuda_device, plan

EIGHT_MINUTES_S = 480


def test_three_benchmarks_fit_in_eight_minutes() -> None:
    """With time left to start and stop what they need."""
    assert NAMES == ("engine", "fleet", "latency")
    assert len(NAMES) * SECONDS_EACH <= EIGHT_MINUTES_S - 60
    assert plan(quick=False).ends_s - perf_counter() == pytest.approx(SECONDS_EACH, abs=1)


def test_without_a_cuda_device_it_says_so_and_writes_nothing(tmp_path: Path) -> None:
    """As wrong usage, before it loads any model."""
    if cuda_device() is not None:
        return
    output = tmp_path / "gpu.json"
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu", "--output", str(output)],
        env={**kept, "PYTHONPYCACHEPREFIX": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "no CUDA device" in done.stderr
    assert not output.exists()
