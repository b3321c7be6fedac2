"""`python -m benchmarks [NAME …] [--json] [--quick]`."""

from __future__ import annotations

import signal
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final

import click

from benchmarks.bytecode import keep_bytecode
from benchmarks.figures import FIGURES

if TYPE_CHECKING:
    from types import FrameType

NAMES: Final = tuple(FIGURES)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, type=click.Choice(NAMES))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each benchmark.")
@click.option("--quick", is_flag=True, help="Less work: within a minute each, and noisier.")
def main(names: tuple[str, ...], *, as_json: bool, quick: bool) -> None:
    """Run benchmarks, all of them if none is named."""
    keep_bytecode()
    signal.signal(signal.SIGTERM, leave)
    for name in names or NAMES:
        report = import_module(f"benchmarks.{name}").run(quick=quick)
        click.echo(report.as_json() if as_json else report.as_text())


def leave(number: int, _frame: FrameType | None) -> None:
    """Turn a signal into an orderly end, in which child processes are stopped."""
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
