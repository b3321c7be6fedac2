"""`cordwood queue`: what waits, what runs, what is dead."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from cordwood.cli.session import Session, json_option, print_fields, print_json, print_table
from cordwood.inspection import QueueView, look_at_queue, queue_names, recorded_arrivals

if TYPE_CHECKING:
    from collections.abc import Mapping

HEADINGS = (
    "QUEUE",
    "READY",
    "IN FLIGHT",
    "DELAYED",
    "DEAD",
    "OLDEST S",
    "DRAIN S",
    "WORKERS",
    "PAUSED",
    "TASK",
    "MODEL",
)


@click.group()
def queue() -> None:
    """Look at queues."""


@queue.command("ls")
@json_option
@click.pass_obj
def list_queues(session: Session, as_json: bool) -> None:  # noqa: FBT001 - click passes flags by name
    """List all queues.

    \b
    Example:
      cordwood queue ls --json
    """  # noqa: D301 - click wants the character itself
    views = [look_at_queue(session.redis, session.keys(name)) for name in queue_names(session.redis)]
    if as_json:
        print_json([_as_dict(view) for view in views])
        return
    print_table(HEADINGS, [_row(view) for view in views])


@queue.command("show")
@click.argument("name")
@json_option
@click.pass_obj
def show_queue(session: Session, name: str, as_json: bool) -> None:  # noqa: FBT001 - click passes flags by name
    """Show one queue: its lanes, its counters, who serves it. A queue that was never used is shown as empty.

    \b
    Example:
      cordwood queue show embed
    """  # noqa: D301 - click wants the character itself
    view = look_at_queue(session.redis, session.keys(name))
    if as_json:
        print_json(_as_dict(view))
        return
    row = dict(zip(map(str.lower, HEADINGS), _row(view), strict=True))
    print_fields({**row, **{f"counted {key}": value for key, value in view.stats.items()}})
    print_table(
        ("LANE", "READY", "IN FLIGHT", "ASIDE"),
        [(lane.lane, lane.ready, lane.in_flight, lane.aside) for lane in view.lanes],
    )


@queue.command("arrivals")
@click.argument("name")
@json_option
@click.pass_obj
def list_arrivals(session: Session, name: str, as_json: bool) -> None:  # noqa: FBT001 - click passes flags by name
    """Print when the jobs came whose records are still there, with their tokens and lanes, as CSV.

    `cordwood-worker simulate --arrivals` reads it.

    \b
    Example:
      cordwood queue arrivals embed
    """  # noqa: D301 - click wants the character itself
    arrivals = recorded_arrivals(session.redis, session.keys(name))
    if as_json:
        found = [{"at_s": at_s, "tokens": tokens, "lane": lane} for at_s, tokens, lane in arrivals]
        print_json({"queue": name, "arrivals": found})
        return
    click.echo("at_s,tokens,lane")
    for at_s, tokens, lane in arrivals:
        click.echo(f"{at_s:.3f},{tokens},{lane}")


def _row(view: QueueView) -> tuple[object, ...]:
    return (
        view.queue,
        view.ready,
        view.in_flight,
        view.delayed,
        view.dead,
        round(view.oldest_age_ms / 1000, 1),
        "-" if view.drain_s is None else round(view.drain_s, 1),
        view.workers,
        "yes" if view.paused else "no",
        view.task or "-",
        view.model or "-",
    )


def _as_dict(view: QueueView) -> Mapping[str, object]:
    return {**asdict(view), "ready": view.ready, "in_flight": view.in_flight}
