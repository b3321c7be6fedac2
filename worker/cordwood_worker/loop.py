"""How a worker's loops run: each is an object with a `run_once`, and this is all that is around it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from threading import Event
from typing import Final, Protocol

from cordwood.errors import CordwoodError

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 2.0


class Loop(Protocol):
    """One duty of the worker."""

    def run_once(self) -> None:
        """Do the next piece of it, waiting for it a bounded time."""
        ...


@dataclass(slots=True)
class Backoff:
    """Pauses that double with each error in a row, so that an outage costs little time and few log lines."""

    pause_s: float = FIRST_PAUSE_S

    def next_s(self) -> float:
        """Return the pause that is due, and make the next one longer."""
        pause_s = self.pause_s
        self.pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        return pause_s

    def reset(self) -> None:
        """Begin anew after a success."""
        self.pause_s = FIRST_PAUSE_S


def run_loop(loop: Loop, stop: Event, log: logging.Logger) -> None:
    """Run a loop until it is told to stop; outages are outlasted, any other error ends it.

    ServerUnavailable, ServerFull and the server's refusals are logged, one line each, at the pace of the pauses.
    """
    backoff = Backoff()
    while not stop.is_set():
        try:
            loop.run_once()
        except CordwoodError as error:
            log.warning("%s: %s", type(loop).__name__, error)
            stop.wait(backoff.next_s())
        else:
            backoff.reset()
