"""The rival infinity-emb, where its environment was built: `make bench` does, into `.venv-infinity`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.own_engine import MODEL
from benchmarks.processes import ROOT, ChildGone, read_line, running, write_line
from cordwood_worker.backends.model_folder import find_model_folder

PYTHON: Final = ROOT / ".venv-infinity" / "bin" / "python"
STAMP: Final = ROOT / ".venv-infinity" / "installed.stamp"
DTYPES: Final = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
READY: Final = "ready"


class Infinity:
    """A process that has the model in some precisions and the texts, and embeds them whenever it is asked."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    def seconds(self, precision: str) -> float:
        """Embed all texts in a precision; return the seconds as the process measured them."""
        write_line(self._process, DTYPES[precision])
        return float(read_line(self._process, self._log))


def is_installed() -> bool:
    """Whether its environment was built to the end."""
    return STAMP.is_file()


@contextmanager
def running_infinity(texts: Sequence[str], precisions: Sequence[str], device: str, folder: Path) -> Iterator[Infinity]:
    """Run it on the same weights; `folder` is for its log. Raises ChildGone if it does not come up."""
    log = folder / "infinity.log"
    server = Path(__file__).with_name("infinity_server.py")
    dtypes = [DTYPES[precision] for precision in precisions]
    # The folder of the script has a module `queue`, which is not Python's.
    arguments = ["-P", str(server), str(find_model_folder(MODEL, None)), device.partition(":")[0], *dtypes]
    with running(arguments, log, python=str(PYTHON), piped=True) as process:
        write_line(process, json.dumps(list(texts)))
        if read_line(process, log) != READY:
            raise ChildGone(f"infinity-emb did not say that it is ready, see {log}")
        yield Infinity(process, log)
