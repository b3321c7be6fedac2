"""Where the tokens of a batch are when its rows lie end to end, and how attention finds the rows again. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

MAX_SCORES: Final = 3 << 18
"""How many attention scores are computed at once on a CPU: more do not stay in the cache.

bf16 at 64 tokens a row: 0.99 ms for 2,800 tokens at this number, 1.38 ms at three times and 1.6 ms at a quarter of it.
"""


FILL_STEPS: Final = ((128, 32), (512, 64), (2048, 128))
"""Up to so many tokens a packed batch is filled to a multiple of so many; above, to an eighth of the power of two.

oneDNN keeps compiled products for every number of tokens, 1 to 2 MB for each layer's shape, and takes 0.3 ms to make
one: without filling a worker would grow by a gigabyte. A batch at its budget is filled by nothing or little.
"""


@dataclass(frozen=True, slots=True)
class Group:
    """Neighbouring rows whose attention is computed together, in cells of `width` tokens a row.

    `cell` is the first of its cells. `lengths` are the rows' own; those that are all `width` need no mask.
    """

    rows: int
    width: int
    cell: int
    lengths: NDArray[np.int64]

    @property
    def is_even(self) -> bool:
        """Whether every row fills its cells."""
        return bool((self.lengths == self.width).all())


@dataclass(frozen=True, slots=True)
class Packing:
    """Rows end to end, sorted by length: row `order[i]` of the batch has `lengths[i]` tokens from `starts[i]` on."""

    order: NDArray[np.int64]
    lengths: NDArray[np.int64]
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, lengths: Sequence[int]) -> Packing:
        """Lay out rows of these lengths, each at least 1."""
        given = np.asarray(lengths, dtype=np.int64)
        order = np.argsort(given, kind="stable")
        ordered = given[order]
        return cls(order, ordered, np.cumsum(ordered) - ordered)

    @property
    def tokens(self) -> int:
        """The tokens of all rows."""
        return int(self.lengths.sum())

    @property
    def segments(self) -> NDArray[np.int64]:
        """For each token the number of its row, in packed order; shape (tokens,)."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    @property
    def positions(self) -> NDArray[np.int64]:
        """For each token its position in its row, from 0; shape (tokens,)."""
        return np.arange(self.tokens) - np.repeat(self.starts, self.lengths)

    @property
    def bounds(self) -> NDArray[np.int32]:
        """The first token of each row and the end of the last, as variable-length attention takes them."""
        return np.append(self.starts, self.tokens).astype(np.int32)

    def groups(self, step: int, heads: int, max_scores: int = MAX_SCORES) -> list[Group]:
        """Group rows of near-equal length: widths are multiples of `step`, and scores bounded by `max_scores`."""
        found: list[Group] = []
        widths = -(-self.lengths // step) * step
        first, cell = 0, 0
        while first < len(widths):
            width = int(widths[first])
            most = max(1, max_scores // (heads * width * width))
            end = min(int(np.searchsorted(widths, width, side="right")), first + most)
            found.append(Group(end - first, width, cell, self.lengths[first:end]))
            cell += (end - first) * width
            first = end
        return found

    def gather_index(self, groups: Sequence[Group], heads: int) -> NDArray[np.int64]:
        """For each cell the line of a (tokens × heads, size) matrix that belongs there, a row's heads one by one.

        Cells behind a row's end repeat its first token: they must be masked.
        """
        parts: list[NDArray[np.int64]] = []
        first = 0
        for group in groups:
            place = np.arange(group.width)
            starts = self.starts[first : first + group.rows, None]
            tokens = starts + np.where(place < group.lengths[:, None], place, 0)
            lines = tokens[:, None, :] * heads + np.arange(heads)[:, None]
            parts.append(lines.ravel())
            first += group.rows
        return np.concatenate(parts)

    def scatter_index(self, groups: Sequence[Group], heads: int) -> NDArray[np.int64]:
        """The way back: for each line of the (tokens × heads, size) matrix the cell that holds it."""
        cells = np.concatenate([group.cell + np.arange(group.rows) * group.width for group in groups])
        widths = np.concatenate([np.full(group.rows, group.width) for group in groups])
        first, width = np.repeat(cells, self.lengths), np.repeat(widths, self.lengths)
        lines = (first * heads + self.positions)[:, None] + np.arange(heads) * width[:, None]
        flat: NDArray[np.int64] = lines.ravel()
        return flat


def filled(tokens: int) -> int:
    """Return how many tokens a packed batch has after it was filled."""
    step = next((step for most, step in FILL_STEPS if tokens <= most), 1 << max(0, (tokens - 1).bit_length() - 4))
    return -(-tokens // step) * step


def filled_sizes(most: int) -> list[int]:
    """Return all sizes that filled batches of at most so many tokens can have, in order."""
    sizes = [filled(1)]
    while sizes[-1] < most:
        sizes.append(filled(sizes[-1] + 1))
    return sizes


def most_cells(tokens: int, rows: int, step: int) -> int:
    """Return how many cells a batch of at most so many tokens and rows can have at most."""
    return tokens + rows * (step - 1)
