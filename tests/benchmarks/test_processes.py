from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.processes import ChildGone, await_ready, environment, frozen, read_line, running, write_line
from tests.waiting import wait_until

ECHO = "import sys\nfor line in sys.stdin: print(line.strip() * 2, flush=True)"


def test_a_piped_child_answers_line_by_line(tmp_path: Path) -> None:
    """And has ended after the block."""
    log = tmp_path / "log"
    with running(["-c", ECHO], log, piped=True) as process:
        for word in ("a", "b"):
            write_line(process, word)
            assert read_line(process, log) == 2 * word
        assert process.poll() is None
    assert process.poll() is not None


def test_a_child_that_fails_is_told_with_the_last_it_said(tmp_path: Path) -> None:
    """In the first line, which is what a note shows."""
    log = tmp_path / "log"
    with (
        running(["-c", "raise SystemExit('no model here')"], log) as process,
        pytest.raises(ChildGone, match=r"\Aexit code 1: no model here\n"),
    ):
        await_ready(process, log, lambda: False)
    with running(["-c", "raise SystemExit('nor there')"], log, piped=True) as process:
        process.wait()
        write_line(process, "are you there?")
        with pytest.raises(ChildGone, match="nor there"):
            read_line(process, log)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's death")
def test_a_child_does_not_outlive_a_parent_that_is_killed() -> None:
    """Its end of a pipe is closed then."""
    reading, writing = os.pipe()
    child = f"import os, signal, sys; os.write({writing}, b'x'); signal.pause()"
    code = f"""
import os, signal, subprocess, sys
from benchmarks import processes
command = [sys.executable, "-c", processes.LAUNCH, str(os.getpid()), sys.executable, "-c", {child!r}]
subprocess.Popen(command, pass_fds=({writing},))
signal.pause()
"""
    with subprocess.Popen([sys.executable, "-c", code], env=environment(), pass_fds=(writing,)) as parent:
        os.close(writing)
        assert os.read(reading, 1) == b"x"
        parent.kill()
        assert os.read(reading, 1) == b""
    os.close(reading)


@pytest.mark.skipif(sys.platform != "linux", reason="the state of a process is read from /proc")
def test_a_frozen_child_does_not_run_until_the_block_is_over(tmp_path: Path) -> None:
    """What it is sent meanwhile it answers then."""
    log = tmp_path / "log"

    with running(["-c", ECHO], log, piped=True) as process:

        def state() -> str:
            return Path(f"/proc/{process.pid}/stat").read_text("ascii").rpartition(")")[2].split()[0]

        write_line(process, "a")
        assert read_line(process, log) == "aa"
        with frozen(process):
            write_line(process, "b")
            assert state() == "T"
        assert read_line(process, log) == "bb"
        wait_until(lambda: state() == "S", description="the child waits for its next line")
