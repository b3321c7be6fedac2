"""What is around every loop: outages, errors, the end."""

from __future__ import annotations

import logging
from threading import Event

import pytest

from cordwood.errors import ServerUnavailable
from cordwood_worker.loop import FIRST_PAUSE_S, LONGEST_PAUSE_S, Backoff, run_loop

LOG = logging.getLogger("test")


class Script:
    """A loop that does what it is told, then stops."""

    def __init__(self, *steps: Exception | None) -> None:
        self.stop = Event()
        self._steps = list(steps)

    def run_once(self) -> None:
        """Take the next step."""
        step = self._steps.pop(0)
        if not self._steps:
            self.stop.set()
        if step is not None:
            raise step


def test_an_outage_is_outlasted_with_one_line_for_each_pause(caplog: pytest.LogCaptureFixture) -> None:
    """The loop goes on as soon as the server answers."""
    loop = Script(ServerUnavailable("gone"), ServerUnavailable("gone"), None)
    run_loop(loop, loop.stop, LOG)
    assert [record.getMessage() for record in caplog.records] == ["Script: gone"] * 2


def test_any_other_error_ends_the_loop() -> None:
    """The worker must not live on without one of its parts."""
    loop = Script(None, KeyError("bug"), None)
    with pytest.raises(KeyError):
        run_loop(loop, loop.stop, LOG)


def test_pauses_double_up_to_a_bound_and_begin_anew_after_a_success() -> None:
    """So that an outage costs few lines and little time."""
    backoff = Backoff()
    pauses = [backoff.next_s() for _ in range(10)]
    assert pauses[:3] == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S]
    assert pauses[-1] == LONGEST_PAUSE_S
    backoff.reset()
    assert backoff.next_s() == FIRST_PAUSE_S
