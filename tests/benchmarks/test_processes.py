from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.processes import ChildGone, await_ready, frozen, read_line, running, write_line
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
