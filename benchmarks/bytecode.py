"""Keeping compiled bytecode, so that a benchmark's processes start in seconds."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parents[1] / "build" / "bytecode"


def keep_bytecode() -> None:
    """Where Python is told to keep none (containers do that), keep it under `build/`, for child processes too.

    Importing torch and transformers takes 10 s of a core without it and 4 s with it, in each of up to five processes.
    """
    if sys.dont_write_bytecode:
        sys.dont_write_bytecode = False
        sys.pycache_prefix = str(FOLDER)
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
