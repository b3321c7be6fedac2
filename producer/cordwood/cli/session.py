"""What every command needs: the server that it looks at, and a way to print."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from cordwood import connection, settings
from cordwood.connection import Patience, SyncRedis
from cordwood.embedded import resolve_url
from cordwood.errors import InvalidInput
from cordwood.keys import Keys, queue_keys
from cordwood.settings import Settings

CLI_PATIENCE: Final = Patience(timeout_s=2.0, retries=1)
"""An operator looks while something is wrong: an answer or an error within 6 s."""
EXIT_ERROR: Final = 1
EXIT_USAGE: Final = 2
EXIT_NO_SUCH_JOB: Final = 3


@dataclass
class Session:
    """The settings of one command line, and its connection, made when first needed."""

    config: Path | None
    flags: Mapping[str, object]

    @cached_property
    def settings(self) -> Settings:
        """The settings; raises SettingsError."""
        flags = {name: value for name, value in self.flags.items() if value is not None}
        return settings.load(self.config, os.environ, flags)

    @cached_property
    def redis(self) -> SyncRedis:
        """A connection to the server; raises ServerUnavailable if there is none to connect to."""
        return connection.connect(resolve_url(self.settings), CLI_PATIENCE)

    def close(self) -> None:
        """End the connection, if there is one."""
        if "redis" in self.__dict__:
            self.redis.close()

    @staticmethod
    def keys(queue: str) -> Keys:
        """The keys of a queue; raises InvalidInput for a name that no queue can have."""
        try:
            return queue_keys(queue)
        except ValueError as error:
            raise InvalidInput(str(error)) from None


def json_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--json` to a command."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON value, with the same keys always.")(
        command
    )


def print_json(value: object) -> None:
    """Print a value as JSON."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=True))


def print_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows in columns; numbers stand on the right."""
    cells = [[printable(str(cell)) for cell in row] for row in rows]
    kinds = [[isinstance(cell, int | float) for cell in row] for row in rows] if isinstance(rows, list) else []
    widths = [max(len(row[column]) for row in [list(headings), *cells]) for column in range(len(headings))]
    click.echo("  ".join(heading.ljust(width) for heading, width in zip(headings, widths, strict=True)).rstrip())
    for index, row in enumerate(cells):
        numeric = kinds[index] if kinds else [False] * len(row)
        line = "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        )
        click.echo(line.rstrip())


def print_fields(fields: Mapping[str, object]) -> None:
    """Print names and values, one a line."""
    width = max(map(len, fields), default=0)
    for name, value in fields.items():
        click.echo(f"{name.ljust(width)}  {printable(str(value))}".rstrip())


def printable(text: str) -> str:
    """Escape control characters, so that what others wrote cannot steer the terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def fail(message: str, code: int = EXIT_ERROR) -> NoReturn:
    """Print one line to standard error and end with the code."""
    click.echo(f"cordwood: {printable('; '.join(message.splitlines()))}", err=True)
    sys.exit(code)
