from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count

import pytest

from benchmarks.measure import Candidate, Plan, Report, Spread, Timing, percentile, rates, ratio, time_in_turn

NEVER_S = 1e9


def plan(*, rounds: int, ends_s: float = NEVER_S) -> Plan:
    """A plan of which only the rounds and the end matter."""
    return Plan(quick=True, device="cpu", texts=1, rounds=rounds, ends_s=ends_s)


def ticking() -> Iterator[float]:
    """A clock that shows a second more each time it is looked at."""
    yield from map(float, count())


def test_a_ratio_is_the_median_of_ratios_within_a_round() -> None:
    """A round in which the machine was slow for both changes nothing."""
    assert ratio([2.0, 200.0, 3.0], [1.0, 100.0, 1.0]) == 2.0


def test_percentiles_are_values_that_were_measured() -> None:
    """From the least to the largest."""
    values = [float(number) for number in range(100, -1, -1)]
    assert [percentile(values, share) for share in (0.0, 0.5, 0.99, 1.0)] == [0.0, 50.0, 99.0, 100.0]
    assert percentile([7.0], 0.99) == 7.0


def test_candidates_are_timed_in_turn_and_by_the_token() -> None:
    """Each once a round, in the order they were given."""
    calls: list[str] = []

    def candidate(name: str, seconds: float, tokens: int) -> Candidate:
        def work() -> float:
            calls.append(name)
            return seconds

        return Candidate(seconds=work, texts=1, tokens=tokens)

    candidates = {"a": candidate("a", 3.0, 10), "b": candidate("b", 1.0, 2)}
    assert time_in_turn(candidates, plan(rounds=2)) == {"a": [0.3, 0.3], "b": [0.5, 0.5]}
    assert calls == ["a", "b", "a", "b"]


@pytest.mark.parametrize(("ends_s", "rounds"), [(-1.0, 1), (2.5, 1), (4.5, 2), (NEVER_S, 5)])
def test_no_round_begins_that_would_not_end_in_time(ends_s: float, rounds: int) -> None:
    """The first one always does; each takes a second here, and a look at the clock another."""
    candidates = {"a": Candidate(seconds=lambda: 1.0, texts=1, tokens=1)}
    clock = ticking()
    assert len(time_in_turn(candidates, plan(rounds=5, ends_s=ends_s), lambda: next(clock))["a"]) == rounds


def test_rates_are_of_the_median_round() -> None:
    """In texts and in tokens a second, for as many as the candidate had."""
    candidate = Candidate(seconds=lambda: 0.0, texts=10, tokens=100)
    timing = rates({"a": candidate}, {"a": [0.01, 0.02, 0.09]})["a"]
    assert timing.seconds.median == pytest.approx(2.0)
    assert timing.texts_per_s == pytest.approx(5.0)
    assert timing.tokens_per_s == pytest.approx(50.0)


def test_a_report_is_one_json_object_with_what_the_issue_names() -> None:
    """And a table for people, with the notes."""
    report = Report(benchmark="queue", settings={"jobs": 3}, figures={"submit_us": 1.5}, notes=["without it"])
    report.results["one"] = Timing(seconds=Spread.of([1.0, 2.0, 3.0]), texts_per_s=4.0, tokens_per_s=5.0)
    found = json.loads(report.as_json())
    assert {"benchmark", "machine", "settings", "results", "figures"} <= set(found)
    assert found["results"]["one"]["seconds"] == {"median": 2.0, "p10": 1.0, "p90": 3.0}
    text = report.as_text()
    assert all(part in text for part in ("jobs=3", "submit_us", "without it", "texts/s"))
