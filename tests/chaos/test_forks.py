"""Case C20: a worker in a process that was forked says so, ends, and acknowledges nothing."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest

from cordwood.result import Result
from cordwood_worker.exit_codes import ExitCode
from tests.fleet import PATIENT, Fleet, worker_environment
from tests.models import MINILM

BAD_FORK: Final = """
import torch
torch.cuda._is_in_bad_fork = lambda: True
from cordwood_worker.cli import main
main()
"""
"""The command, in a process that torch takes for a fork of one that had used CUDA."""

FORK_AFTER_LOADING: Final = """
import os, sys
from pathlib import Path
from cordwood.settings import load
from cordwood_worker.backends import load_backend
from cordwood_worker.cli import configure_logging, end_process
from cordwood_worker.worker import Loaded, Worker

_, _, _, config, _, url = sys.argv
settings = load(Path(config), os.environ, {"redis_url": url})
configure_logging(settings.log_level)
backend = load_backend(settings.queue("embed"))
backend.warm_up(settings.batch_limits("embed"))
if child := os.fork():
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
end_process(Worker(settings, [Loaded("embed", backend)], url).run())
"""
"""A program that loads the model once and serves it in a fork."""


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("program", "code", "said"),
    [
        (BAD_FORK, ExitCode.NOT_STARTED, "forked from one that had used CUDA"),
        (FORK_AFTER_LOADING, ExitCode.DEVICE_BROKEN, "is a fork of"),
    ],
    ids=["cuda was used", "a model was loaded"],
)
def test_c20_a_forked_worker_ends_and_acknowledges_nothing(
    fleet: Fleet, program: str, code: ExitCode, said: str
) -> None:
    """One line says why, the exit code is not 0, and a worker that was started properly does the jobs."""
    fleet.configure(PATIENT, model=MINILM)
    ids = fleet.client.submit_many(["one", "two", "three"])
    arguments = ["run", "--config", str(fleet.folder / "fleet.toml"), "--redis-url", fleet.url]
    ended = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=worker_environment(),
        cwd=fleet.folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == code, ended.stderr
    assert [said in line for line in ended.stderr.splitlines()].count(True) == 1
    assert "Traceback" not in ended.stderr
    assert sum(fleet.lengths().values()) == len(ids)
    fleet.start()
    outcomes = fleet.client.wait_many(ids, timeout_s=60)
    assert all(isinstance(outcome, Result) for outcome in outcomes)
