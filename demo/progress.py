"""Showing how far the demo is: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PLAIN_LINES: Final = 4
"""How many lines a run without a terminal prints."""


@contextmanager
def shown_progress(total: int, what: str) -> Iterator[Callable[[], None]]:
    """Give a function to call once for each of `total` things that is done."""
    if sys.stdout.isatty():
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns) as progress:
            task = progress.add_task(what, total=total)
            yield lambda: progress.advance(task)
    else:
        yield _plain_lines(total, what)


def _plain_lines(total: int, what: str) -> Callable[[], None]:
    done = 0

    def advance() -> None:
        nonlocal done
        done += 1
        if done * PLAIN_LINES // total > (done - 1) * PLAIN_LINES // total:
            print(f"{what}: {done} of {total}", flush=True)

    return advance
