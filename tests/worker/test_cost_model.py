"""What a batch costs in time, learned from batches whose true cost is known."""

from __future__ import annotations

import random
from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood_worker.batch import Batch
from cordwood_worker.cost_model import KNOWN_AFTER, Coefficients, CostModel, Work, packed_work, padded_work
from tests.worker.rows import make_row

TRUTH = Coefficients(token_s=4e-6, row_s=2e-5, square_s=3e-9, batch_s=1.5e-3)


def random_work(rng: random.Random) -> Work:
    """Batches of all sizes, as a changing load makes them."""
    rows, longest = rng.randint(1, 64), rng.randint(4, 256)
    return Work(rows * longest, rows, rows * longest * longest)


def true_seconds(work: Work, truth: Coefficients = TRUTH) -> float:
    """What the model says a batch takes that has these coefficients."""
    by_size = truth.token_s * work.tokens + truth.row_s * work.rows + truth.square_s * work.squares
    return by_size + truth.batch_s


def taught(batches: int = 400, noise: float = 0.0, truth: Coefficients = TRUTH) -> CostModel:
    """A model that has seen so many batches, each off by a factor of up to 1 + noise either way."""
    rng, model = random.Random(11), CostModel(padded_work)
    for _ in range(batches):
        work = random_work(rng)
        model.note_work(work, true_seconds(work, truth) * (1 + rng.uniform(-noise, noise)))
    return model


def worst(model: CostModel, truth: Coefficients = TRUTH) -> float:
    """The largest relative error on work that it has not seen."""
    rng = random.Random(12)
    works = [random_work(rng) for _ in range(200)]
    return max(abs(model.seconds(work) / true_seconds(work, truth) - 1) for work in works)


def test_work_counts_what_the_device_computes() -> None:
    """A padded matrix counts its padding, rows without padding do not."""
    batch = Batch((make_row(0, 10), make_row(1, 4), make_row(2, 2)))
    assert padded_work(batch) == Work(30, 3, 300)
    assert packed_work(batch) == Work(16, 3, 120)


def test_it_predicts_nothing_before_it_has_seen_a_few_batches() -> None:
    """An unknown cost is no reason to hurry or to wait."""
    model = CostModel(padded_work)
    assert (model.is_known, model.error, model.tokens_per_s(2048)) == (False, 0.0, 0.0)
    assert (model.seconds(Work(100, 2, 5000)), model.coefficients) == (0.0, Coefficients())
    for _ in range(KNOWN_AFTER):
        assert not model.is_known
        model.note(Batch((make_row(0, 10),)), 0.25)
    assert model.is_known
    model.note(Batch((make_row(0, 10),)), 0.0)
    assert model.seconds(Work(10, 1, 100)) == pytest.approx(0.25, rel=1e-3)


def test_the_coefficients_are_found() -> None:
    """From batches of many shapes, without noise, to a few parts in a hundred; predictions closer."""
    model = taught()
    assert astuple(model.coefficients) == pytest.approx(astuple(TRUTH), rel=0.1)
    assert worst(model) < 0.02
    assert model.error < 0.02


def test_noise_of_a_tenth_leaves_predictions_within_a_twentieth() -> None:
    """And the error that it reports is that of the noise."""
    model = taught(noise=0.1)
    assert worst(model) < 0.05
    assert 0.03 < model.error < 0.08


def test_batches_that_took_far_too_long_do_not_move_it() -> None:
    """One in ten takes ten times as long, as when another process takes the processor."""
    model, rng = taught(noise=0.05), random.Random(5)
    for at in range(300):
        work = random_work(rng)
        model.note_work(work, true_seconds(work) * (10 if at % 10 == 0 else rng.uniform(0.95, 1.05)))
    assert worst(model) < 0.1


def test_it_follows_a_device_that_has_become_slower() -> None:
    """Within some hundred batches."""
    model, rng = taught(noise=0.05), random.Random(6)
    slower = Coefficients(*(2 * part for part in astuple(TRUTH)))
    for _ in range(1000):
        work = random_work(rng)
        model.note_work(work, true_seconds(work, slower) * rng.uniform(0.95, 1.05))
    assert worst(model, slower) < 0.1


def test_the_rate_of_full_batches_is_that_of_rows_as_long_as_of_late() -> None:
    """Tokens per second at a size, with the squares and rows that such a batch would have."""
    model = CostModel(packed_work)
    for rows in range(1, 41):
        work = Work(50 * rows, rows, 2500 * rows)
        model.note_work(work, true_seconds(work))
    full = Work(50 * 40, 40, 2500 * 40)
    assert model.tokens_per_s(2000) == pytest.approx(2000 / true_seconds(full), rel=0.02)
    assert model.seconds_of(1000) == pytest.approx(true_seconds(Work(1000, 20, 50_000)), rel=0.02)


@given(
    st.lists(
        st.tuples(st.integers(1, 300), st.integers(1, 512), st.floats(1e-6, 100, allow_nan=False)),
        min_size=1,
        max_size=60,
    )
)
def test_no_coefficient_is_ever_negative(batches: list[tuple[int, int, float]]) -> None:
    """Whatever the times: no work gives time back, and more work never takes less."""
    model = CostModel(padded_work)
    for rows, longest, seconds in batches:
        model.note_work(Work(rows * longest, rows, rows * longest * longest), seconds)
    assert min(astuple(model.coefficients)) >= 0.0
    assert model.seconds(Work(1, 1, 1)) <= model.seconds(Work(2, 1, 4))
    assert model.error >= 0.0
