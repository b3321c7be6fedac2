"""How `cordwood-worker run` ends."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The process's exit status; 2 is a wrong command line, as everywhere."""

    CLEAN = 0
    """Told to stop, or nothing left with `--burst`: the batch in hand is stored, the rest handed back."""
    CRASHED = 1
    """An error that should not happen; what it held is taken over by others."""
    DRAIN_TIMED_OUT = 3
    """Told to stop, but the batch in hand was not done within `drain_s`, or was cut by a second signal; handed back."""
    DEVICE_BROKEN = 4
    """The device answers nothing any more; nothing was acknowledged. Restart it."""
    NOT_STARTED = 5
    """Settings, model or server are not usable; nothing was fetched."""
    INTERRUPTED = 130
    """Two signals before the worker had begun, as while it loaded its model; nothing was fetched."""
