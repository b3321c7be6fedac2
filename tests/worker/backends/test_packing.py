"""Every token of every row has one place, in the packed order and in the cells of its group."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cordwood_worker.backends.packing import Packing, filled, filled_sizes, most_cells

LENGTHS = st.lists(st.integers(min_value=1, max_value=70), min_size=1, max_size=40)


@given(LENGTHS)
def test_rows_lie_end_to_end_sorted_by_length(lengths: list[int]) -> None:
    """Positions restart with each row, and segments name it."""
    packing = Packing.of(lengths)
    assert sorted(packing.order.tolist()) == list(range(len(lengths)))
    assert [lengths[index] for index in packing.order] == packing.lengths.tolist() == sorted(lengths)
    assert packing.bounds.tolist() == [0, *np.cumsum(sorted(lengths)).tolist()]
    assert packing.positions.tolist() == [place for length in sorted(lengths) for place in range(length)]
    assert packing.segments.tolist() == [row for row, length in enumerate(sorted(lengths)) for _ in range(length)]


@given(LENGTHS, st.sampled_from([1, 16, 32]), st.integers(min_value=1, max_value=3), st.integers(1, 20_000))
def test_what_is_gathered_into_cells_is_scattered_back(lengths: list[int], step: int, heads: int, most: int) -> None:
    """Gather and scatter are inverse on every token and head, whatever the groups."""
    packing = Packing.of(lengths)
    groups = packing.groups(step, heads, most)
    lines = np.arange(packing.tokens * heads)
    cells = lines[packing.gather_index(groups, heads)]
    assert (cells[packing.scatter_index(groups, heads)] == lines).all()
    assert len(cells) == heads * sum(group.rows * group.width for group in groups)
    assert len(cells) <= heads * most_cells(sum(lengths), len(lengths), step)


@given(LENGTHS, st.sampled_from([16, 32]))
def test_groups_cover_all_rows_and_are_no_wider_than_a_step_more(lengths: list[int], step: int) -> None:
    """So little is computed for nothing."""
    packing = Packing.of(lengths)
    groups = packing.groups(step, heads=2, max_scores=5_000)
    assert np.concatenate([group.lengths for group in groups]).tolist() == packing.lengths.tolist()
    for group in groups:
        assert group.rows == len(group.lengths)
        assert group.width % step == 0
        assert (group.lengths > group.width - step).all()
        assert group.rows == 1 or 2 * group.rows * group.width**2 <= 5_000
        assert group.is_even == (set(group.lengths.tolist()) == {group.width})


@given(LENGTHS)
def test_cells_hold_a_rows_heads_one_by_one_and_its_own_tokens_only(lengths: list[int]) -> None:
    """No cell of a row is filled from another row, not even behind its end."""
    packing = Packing.of(lengths)
    groups = packing.groups(16, heads=2)
    lines = packing.gather_index(groups, heads=2)
    rows = np.concatenate([np.full(group.rows * group.width * 2, number) for number, group in enumerate(groups)])
    row_of_line = packing.segments[lines // 2]
    first = 0
    for number, group in enumerate(groups):
        block = row_of_line[rows == number].reshape(group.rows, 2 * group.width)
        assert (block == np.arange(first, first + group.rows)[:, None]).all()
        heads = (lines[rows == number] % 2).reshape(group.rows, 2, group.width)
        assert (heads == np.array([0, 1])[None, :, None]).all()
        first += group.rows


@given(st.integers(min_value=1, max_value=100_000))
def test_batches_are_filled_to_few_sizes_and_by_little(tokens: int) -> None:
    """By less than 128 tokens up to 2,048, by at most an eighth above; and a filled batch is full."""
    size = filled(tokens)
    assert tokens <= size < tokens + max(128, tokens / 8 + 1)
    assert tokens > 128 or size < tokens + 32
    assert filled(size) == size


def test_all_sizes_of_filled_batches_are_known() -> None:
    """So they can be compiled in advance."""
    assert filled_sizes(4096) == sorted({filled(tokens) for tokens in range(1, 4097)})
    assert len(filled_sizes(4096)) < 32
