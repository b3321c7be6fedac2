"""`python -m demo`: exit code 0 if every passage has a vector, 1 if not, 130 after Ctrl-C; no process is left."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import FrameType

EXIT_INTERRUPTED: Final = 130


def main() -> int:
    """Run the demo and return its exit code."""
    signal.signal(signal.SIGTERM, leave)
    try:
        from demo.story import run_demo  # takes a second, in which Ctrl-C should work too

        return run_demo()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED


def leave(number: int, _frame: FrameType | None) -> None:
    """Turn a signal into an orderly end, with the exit code that a shell would show."""
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
