"""`cordwood job`: what became of a job."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from cordwood.cli.session import EXIT_NO_SUCH_JOB, Session, fail, json_option, print_fields, print_json
from cordwood.inspection import look_at_job
from cordwood.job import check_job_id

if TYPE_CHECKING:
    from cordwood.result import JobRecord

TIMES = ("submitted_ms", "started_ms", "finished_ms", "deadline_ms", "expires_ms")


@click.group()
def job() -> None:
    """Look at jobs."""


@job.command("show")
@click.argument("job_id")
@click.option("--queue", "-q", default="embed", show_default=True, help="The job's queue.")
@json_option
@click.pass_obj
def show_job(session: Session, job_id: str, queue: str, as_json: bool) -> None:  # noqa: FBT001 - click passes flags by name
    """Show a job's state, attempts, times and error; never its text. Exits with 3 if there is no such job.

    \b
    Example:
      cordwood job show 01j9zq3k7v --queue embed
    """  # noqa: D301 - click wants the character itself
    record = look_at_job(session.redis, session.keys(queue), check_job_id(job_id))
    if record is None:
        fail(f"no job {job_id} in queue {queue}: never submitted, expired or wiped", EXIT_NO_SUCH_JOB)
    fields = _as_dict(record)
    if as_json:
        print_json(fields)
    else:
        print_fields({**fields, **{name.removesuffix("_ms"): _moment(record, name) for name in TIMES}})


def _as_dict(record: JobRecord) -> dict[str, object]:
    fields = asdict(record)
    result = fields.pop("result")
    return {**fields, "result_bytes": len(result or b"")}


def _moment(record: JobRecord, name: str) -> str:
    moment_ms: int = getattr(record, name)
    return datetime.fromtimestamp(moment_ms / 1000, UTC).isoformat(timespec="milliseconds") if moment_ms else "-"
