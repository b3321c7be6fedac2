"""`python -m benchmarks [NAME …] [--json] [--quick]`."""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

NAMES: Final = ("engine", "fleet", "latency", "queue", "memory")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, type=click.Choice(NAMES))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each benchmark.")
@click.option("--quick", is_flag=True, help="Less work: within a minute each, and noisier.")
def main(names: tuple[str, ...], *, as_json: bool, quick: bool) -> None:
    """Run benchmarks, all of them if none is named."""
    for name in names or NAMES:
        report = import_module(f"benchmarks.{name}").run(quick=quick)
        click.echo(report.as_json() if as_json else report.as_text())


main()
