"""Each result belongs to its own text, whatever the fleet did to the order: case C06."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from cordwood import Client
from cordwood.errors import JobFailed
from cordwood.inspection import look_at_job
from cordwood.job import Job
from cordwood.result import Result
from cordwood_worker.testing import BAD, fault_vector
from tests.fleet import Fleet

SEED = 6


def c06_texts(random: Random) -> list[str]:
    """500 texts of 1 to 200 words in shuffled order, each with a word of its own; 5 of them cannot be embedded."""
    words = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"]
    lengths = [1 + number % 200 for number in range(500)]
    random.shuffle(lengths)
    texts = [" ".join([f"unique{n}", *random.choices(words, k=length - 1)]) for n, length in enumerate(lengths)]
    for position in random.sample(range(500), 5):
        texts[position] = f"{BAD}{position} {texts[position]}"
    return texts


@pytest.mark.timeout(120)
def test_c06_each_of_530_results_of_three_workers_is_that_of_its_own_text(fleet: Fleet) -> None:
    """Shuffled lengths, 30 duplicates under other IDs, 5 invalid jobs: outcomes come in the caller's order."""
    random = Random(SEED)
    texts = c06_texts(random)
    texts += random.sample(texts, 30)
    jobs = [Job(inputs=(text,), id=f"c06-{number}") for number, text in enumerate(texts)]
    random.shuffle(jobs)
    fleet.configure(options={"max_tokens": 2048, "per_row_s": 0.001})
    fleet.start(3)
    ids = fleet.client.submit_many(jobs)
    random.shuffle(ids)
    outcomes = fleet.client.wait_many(ids, timeout_s=60)
    assert [outcome.job_id for outcome in outcomes] == ids
    own = {f"c06-{number}": text for number, text in enumerate(texts)}
    for job_id, outcome in zip(ids, outcomes, strict=True):
        if own[job_id].startswith(BAD):
            assert isinstance(outcome, JobFailed)
            assert outcome.code == "ValueError"
        else:
            assert isinstance(outcome, Result)
            assert np.array_equal(outcome.vector, fault_vector(own[job_id]))
    workers = {outcome.worker for outcome in outcomes if isinstance(outcome, Result)}
    assert len(workers) == 3


def test_the_earliest_deadline_of_what_a_worker_has_fetched_is_run_first(fleet: Fleet) -> None:
    """Submitted in the opposite order, and beside jobs without one: those come last."""
    fleet.configure({"max_batch_rows": 1, "lookahead": 64}, options={"per_row_s": 0.01})
    jobs = [Job(inputs=(f"text {n}",), id=f"d{n}", deadline_s=600.0 - 20 * n if n % 2 else None) for n in range(20)]
    ids = fleet.client.submit_many(jobs)
    fleet.start()
    fleet.client.wait_many(ids, timeout_s=40)
    records = [look_at_job(fleet.redis, fleet.keys, job_id) for job_id in ids]
    finished = {record.job_id: record.finished_ms for record in records if record}
    order = sorted(finished, key=finished.__getitem__)
    expected = [f"d{n}" for n in (*range(19, 0, -2), *range(0, 20, 2))]
    misplaced = [job_id for job_id, place in zip(order, expected, strict=True) if job_id != place]
    assert order.index("d19") <= 2, "the first batches may leave before all are fetched"
    assert order[-8:] == expected[-8:], misplaced


def test_a_job_of_several_inputs_gets_its_rows_in_order(fleet: Fleet) -> None:
    """Rows of one job that ran in several batches, beside those of others, come together again."""
    fleet.configure({"max_batch_rows": 7})
    fleet.start()
    client: Client = fleet.client
    works = [[f"job {n}, input {i} " + "x" * (i * 37 % 90) for i in range(1 + n % 20)] for n in range(60)]
    outcomes = client.wait_many(client.submit_many(works), timeout_s=40)
    for work, outcome in zip(works, outcomes, strict=True):
        assert isinstance(outcome, Result)
        assert np.array_equal(outcome.values, np.stack([fault_vector(text) for text in work]))
