"""`cordwood server`: the embedded server in the foreground."""

from __future__ import annotations

import signal
from threading import Event
from typing import TYPE_CHECKING, Final

import click

from cordwood.cli.session import Session, fail
from cordwood.embedded import EmbeddedServer

if TYPE_CHECKING:
    from types import FrameType

CHECK_S: Final = 0.5


@click.command()
@click.pass_obj
def server(session: Session) -> None:
    """Run the embedded server under the data dir until Ctrl-C or SIGTERM.

    Clients that have no URL and the same data dir find it by themselves; workers need the URL that is printed.

    \b
    Example:
      cordwood --data-dir ./.cordwood server
    """  # noqa: D301 - click wants the character itself
    asked = Event()

    def ask(number: int, frame: FrameType | None) -> None:
        del number, frame
        asked.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ask)
    with EmbeddedServer(session.settings.data_dir) as running:
        click.echo(f"the server is ready: {running.url}", err=True)
        while not asked.is_set():
            code = running.wait(CHECK_S)
            if code is not None:
                fail(f"the server ended with exit code {code}; its log is in {running.data_dir}")
