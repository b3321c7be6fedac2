"""The demo's story: a fleet embeds the passages, figures are printed, and questions are answered."""

from __future__ import annotations

import sys
from contextlib import suppress
from time import perf_counter
from typing import TYPE_CHECKING, Final

import numpy as np

from cordwood import Client
from cordwood.errors import CordwoodError, JobError, WaitTimeout
from cordwood.inspection import queue_stats
from cordwood.keys import queue_keys
from cordwood.result import Result
from demo.corpus import CorpusTooSmall, load_passages
from demo.fleet import QUEUE, WorkerGone, running_fleet
from demo.progress import shown_progress
from demo.report import QUESTIONS, Rates, answer_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cordwood.result import Outcome
    from demo.fleet import Fleet

EXIT_FAILED: Final = 1
LOOK_S: Final = 2.0
"""How long to wait for results before looking whether the worker still lives."""
TIMEOUT_S: Final = 300.0
SHOWN_ERRORS: Final = 5


def run_demo() -> int:
    """Run it from beginning to end; return 0 if every passage has a vector, else 1, with the reason on stderr."""
    try:
        with running_fleet() as fleet:
            return embed_and_search(fleet)
    except (CordwoodError, CorpusTooSmall, WorkerGone) as error:
        print(f"demo: {error}", file=sys.stderr)
        return EXIT_FAILED


def embed_and_search(fleet: Fleet) -> int:
    """Embed the passages on a fleet, print what came out, and return the exit code."""
    passages = load_passages()
    print(f"{len(passages)} passages from the documentation of Python's standard library (PSF licence).")
    print("Waiting for the worker to load its model.", flush=True)
    fleet.await_ready()
    with Client(fleet.url, queue=QUEUE) as client:
        began_s = perf_counter()
        job_ids = client.submit_many(passage.text for passage in passages)
        outcomes = collect(fleet, client, job_ids)
        rates = Rates(len(passages), perf_counter() - began_s, queue_stats(fleet.redis, queue_keys(QUEUE)))
        results = {job_id: outcome for job_id, outcome in outcomes.items() if isinstance(outcome, Result)}
        if len(results) < len(passages):
            return report_failures(len(passages), outcomes)
        vectors = np.stack([results[job_id].vector for job_id in job_ids])
        asked = client.embed(QUESTIONS, timeout_s=TIMEOUT_S)
    print("\n".join([*rates.lines(), *answer_lines(QUESTIONS, asked, passages, vectors)]))
    return 0


def collect(fleet: Fleet, client: Client, job_ids: list[str]) -> dict[str, Outcome]:
    """Wait for all jobs, showing progress, and return the outcomes by job ID; WorkerGone if there is no worker left."""
    outcomes: dict[str, Outcome] = {}
    deadline_s = perf_counter() + TIMEOUT_S
    with shown_progress(len(job_ids), "embedded") as advance:
        while len(outcomes) < len(job_ids) and perf_counter() < deadline_s:
            fleet.check()
            for outcome in next_outcomes(client, [job_id for job_id in job_ids if job_id not in outcomes]):
                outcomes[outcome.job_id] = outcome
                advance()
    return outcomes


def next_outcomes(client: Client, job_ids: list[str]) -> Iterator[Outcome]:
    """Yield what ends within `LOOK_S`."""
    with suppress(WaitTimeout):
        yield from client.as_completed(job_ids, timeout_s=LOOK_S)


def report_failures(expected: int, outcomes: Mapping[str, Outcome]) -> int:
    """Say how many passages have no vector, and why the first of them have none; return the exit code."""
    errors = [outcome for outcome in outcomes.values() if isinstance(outcome, JobError)]
    print(f"{expected - len(outcomes) + len(errors)} of {expected} passages have no vector", file=sys.stderr)
    for error in errors[:SHOWN_ERRORS]:
        print(f"  {error}", file=sys.stderr)
    return EXIT_FAILED
