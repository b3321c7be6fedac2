"""`cordwood worker`: who serves a queue."""

from __future__ import annotations

import click

from cordwood.cli.session import Session, json_option, print_json, print_table
from cordwood.inspection import WorkerView, look_at_workers, queue_names

HEADINGS = ("WORKER", "QUEUE", "SEEN S AGO", "HELD", "MODEL", "DEVICE", "PRECISION", "VERSION")
SHOWN = ("held", "model", "device", "precision", "version")
ALSO_IN_JSON = ("pid", "host", "started_ms", "task", "fingerprint", "backend")


@click.group()
def worker() -> None:
    """Look at workers."""


@worker.command("ls")
@click.option("--queue", "-q", help="Only this queue's.")
@json_option
@click.pass_obj
def list_workers(session: Session, queue: str | None, as_json: bool) -> None:  # noqa: FBT001 - click passes flags by name
    """List the registered workers and when each last showed that it lives.

    \b
    Example:
      cordwood worker ls --queue embed
    """  # noqa: D301 - click wants the character itself
    names = queue_names(session.redis) if queue is None else [queue]
    found = [(name, view) for name in names for view in look_at_workers(session.redis, session.keys(name))]
    if as_json:
        print_json([_as_dict(name, view) for name, view in found])
        return
    print_table(HEADINGS, [_row(name, view) for name, view in found])


def _row(queue: str, view: WorkerView) -> tuple[object, ...]:
    return (view.consumer, queue, round(view.age_ms / 1000, 1), *(view.info.get(name, "-") for name in SHOWN))


def _as_dict(queue: str, view: WorkerView) -> dict[str, object]:
    info = {name: view.info.get(name) for name in (*ALSO_IN_JSON, *SHOWN)}
    return {"worker": view.consumer, "queue": queue, "age_ms": view.age_ms, **info}
