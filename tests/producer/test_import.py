from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import cordwood

HEAVY = ("torch", "transformers", "tokenizers", "sentence_transformers", "cordwood_worker")


def test_importing_the_producer_loads_nothing_heavy() -> None:
    """An application that submits jobs never pays for torch, nor needs it installed."""
    root = str(Path(cordwood.__file__).parents[1])
    script = f"import sys, cordwood; print([name for name in {HEAVY!r} if name in sys.modules])"
    ran = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == "[]"
