"""The `cordwood` command: looking at queues, jobs and workers, and running the embedded server."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

import cordwood
from cordwood.cli.job import job
from cordwood.cli.queue import queue
from cordwood.cli.server import server
from cordwood.cli.session import EXIT_USAGE, Session, fail
from cordwood.cli.worker import worker
from cordwood.errors import CordwoodError, InvalidInput

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 120}


class Commands(click.Group):
    """Errors that are expected end in one line and their exit code, never in a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except InvalidInput as error:
            fail(str(error), EXIT_USAGE)
        except CordwoodError as error:
            fail(str(error))
        except BrokenPipeError:
            # The reader of a pipe has gone, as `| head` does: that is no error.
            _discard_output()
            ctx.exit(0)
        except OSError as error:
            _discard_output()
            fail(f"{error.filename or 'output'}: {error.strerror or error}")


def _discard_output() -> None:
    """Let what is still buffered go nowhere: Python's own flush at exit would fail as the last one did."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group("cordwood", cls=Commands, context_settings=CONTEXT)
@click.version_option(cordwood.__version__, prog_name="cordwood")
@click.option("--config", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="Settings, as TOML.")
@click.option("--redis-url", help="The server; else CORDWOOD_REDIS_URL, else the embedded server in the data dir.")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Where the embedded server lives (./.cordwood).")
@click.pass_context
def cli(context: click.Context, config: Path | None, redis_url: str | None, data_dir: Path | None) -> None:
    """Look at a Cordwood fleet. Nothing that looks ever changes anything.

    Exit codes: 0 done, 1 the server or a setting is at fault, 2 wrong usage, 3 no such job.

    \b
    Example:
      cordwood queue ls
    """  # noqa: D301 - click wants the character itself
    context.obj = Session(config, {"redis_url": redis_url, "data_dir": data_dir})
    context.call_on_close(context.obj.close)


cli.add_command(queue)
cli.add_command(job)
cli.add_command(worker)
cli.add_command(server)


def main() -> None:
    """Run the command line."""
    cli(prog_name="cordwood")
