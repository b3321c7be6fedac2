"""Cases C03 and C20: texts far over the limit, and over the budget of a batch; threads of the tokenizer."""

from __future__ import annotations

import pytest

from cordwood.result import Result
from tests.fleet import PATIENT, QUICK, Fleet
from tests.outcomes import await_rows, check_all_done, submit
from tests.process_usage import cpu_share

pytestmark = pytest.mark.redis


def test_c03_a_text_over_the_batch_budget_runs_alone(fleet: Fleet) -> None:
    """Part b: 200 tokens with a budget of 64, among short ones, within 5 s; nothing goes round for ever."""
    fleet.configure({**QUICK, "max_batch_tokens": 64})
    worker = fleet.start()[0]
    check_all_done(fleet, submit(fleet, ["a", "x" * 200, "b", "c" * 63]), timeout_s=5.0)
    assert not fleet.pending()
    assert not fleet.lengths()
    assert cpu_share(worker.pid, 2.0) < 0.2


@pytest.mark.timeout(120)
def test_c03_texts_of_a_million_characters_are_cut_and_hold_nobody_up(model_fleet: Fleet) -> None:
    """Part a in small: 2 of each kind among 10 short ones, which are over long before."""
    kinds = ["." * 1_000_000, "a " * 500_000, "木" * 300_000]
    long = [kind for kind in kinds for _ in range(2)]
    rows = model_fleet.stat("rows")
    ids = model_fleet.client.submit_many([*long, *(f"short text {number}" for number in range(10))])
    outcomes = model_fleet.client.wait_many(ids, timeout_s=60)
    await_rows(model_fleet, rows + 16)
    results = [outcome for outcome in outcomes if isinstance(outcome, Result)]
    assert len(results) == 16
    assert [bool(result.outputs.truncated) for result in results] == [True] * 6 + [False] * 10
    assert {result.outputs.tokens for result in results[:6]} <= {(256,), (3,)}


@pytest.mark.timeout(120)
def test_c20_a_worker_is_not_held_up_by_threads_of_the_tokenizer(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `TOKENIZERS_PARALLELISM=true`, where a fork would hang; the chaos tier has 2,000 texts."""
    from tests.models import MINILM

    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    fleet.configure({**PATIENT, "max_batch_rows": 64}, model=MINILM)
    fleet.start()
    ids = fleet.client.submit_many([f"text {number}" for number in range(300)])
    outcomes = fleet.client.wait_many(ids, timeout_s=60)
    assert sum(isinstance(outcome, Result) for outcome in outcomes) == 300
