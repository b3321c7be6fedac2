"""Child processes of a benchmark: started with this checkout's code, frozen while a queue is filled, and ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from time import monotonic
from typing import IO, Final

ROOT: Final = Path(__file__).parents[1]
STOP_S: Final = (5.0, 5.0)
"""How long a child may take after a first and after a second SIGTERM."""
READY_S: Final = 120.0
LOOK_S: Final = 0.02
LOG_TAIL_BYTES: Final = 2_000

# Becomes the child, after asking Linux for a SIGTERM when whoever started it dies: 1 is PR_SET_PDEATHSIG.
LAUNCH: Final = """
import ctypes, os, signal, sys
parent, *command = sys.argv[1:]
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    if os.getppid() != int(parent):
        sys.exit(1)
os.execv(command[0], command)
"""


class ChildGone(Exception):
    """A child ended or was not ready in time; the message has the end of its log."""


def environment() -> Mapping[str, str]:
    """Return what a child inherits: nothing of Cordwood's own settings, this checkout first, and no hub."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CORDWOOD_")}
    roots = os.pathsep.join(str(path) for path in (ROOT / "producer", ROOT / "worker", ROOT))
    return {**kept, "PYTHONPATH": roots, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


@contextmanager
def running(
    arguments: Sequence[str], log: Path, *, python: str = sys.executable, piped: bool = False
) -> Iterator[subprocess.Popen[str]]:
    """Run `python arguments…` for as long as the block lasts, in a session of its own, and ask it to stop after it.

    It does not outlive this process, on Linux, whatever ends that.

    `piped` gives pipes for its standard input and output; else its output goes to the log with its errors.
    """
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, str(os.getpid()), python, *arguments],
            stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
            stdout=subprocess.PIPE if piped else output,
            stderr=output,
            text=True,
            cwd=log.parent,
            env=environment(),
            start_new_session=True,
        )
    try:
        yield process
    finally:
        _stop(process)


def await_ready(process: subprocess.Popen[str], log: Path, is_ready: Callable[[], bool]) -> None:
    """Wait until a child is ready; raise ChildGone if it ends before or takes over `READY_S`."""
    deadline_s, pause = monotonic() + READY_S, Event()
    while not is_ready():
        if process.poll() is not None or monotonic() > deadline_s:
            raise _gone(process, log)
        pause.wait(LOOK_S)


@contextmanager
def frozen(process: subprocess.Popen[str]) -> Iterator[None]:
    """Keep a child from running while the block lasts, so that a queue can be filled before its clock starts.

    What a blocked read of the child is given by the server meanwhile is one read's worth, before the clock.
    """
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def read_line(process: subprocess.Popen[str], log: Path) -> str:
    """Return the next line of a piped child; raise ChildGone if it has ended."""
    line = _pipe(process.stdout).readline()
    if not line:
        raise _gone(process, log)
    return line.strip()


def write_line(process: subprocess.Popen[str], line: str) -> None:
    """Send a line to a piped child; that it has gone shows when its answer is read."""
    pipe = _pipe(process.stdin)
    with suppress(BrokenPipeError):
        pipe.write(line + "\n")
        pipe.flush()


def _gone(process: subprocess.Popen[str], log: Path) -> ChildGone:
    """Return what to raise, with the last thing the child said first: a note has room for one line."""
    lines = log.read_bytes()[-LOG_TAIL_BYTES:].decode("utf-8", "replace").strip().splitlines() or [""]
    return ChildGone("\n".join((f"exit code {process.poll()}: {lines[-1]}", *lines)))


def _pipe(pipe: IO[str] | None) -> IO[str]:
    if pipe is None:
        raise ValueError("this child was started without pipes")
    return pipe


def _stop(process: subprocess.Popen[str]) -> None:
    try:
        for patience_s in STOP_S:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(patience_s)
                return
    finally:
        process.kill()
        process.wait()
        _close(process.stdin)
        _close(process.stdout)


def _close(pipe: IO[str] | None) -> None:
    """Close a pipe, at whose other end there may be nobody to take what it still holds."""
    if pipe is not None:
        with suppress(BrokenPipeError):
            pipe.close()
