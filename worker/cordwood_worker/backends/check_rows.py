"""Built-in texts of all lengths, by which a worker checks and times a model before it serves it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from cordwood_worker.batch import Tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from cordwood_worker.backends.tokeniser import Tokeniser

SENTENCES: Final = (
    "A cord of wood is a stack four feet high, four feet wide and eight feet long.",
    "The invoice of 12 March 2024 (no. 4711-B) was paid twice: 1,299.00 EUR each time!",
    "def merge(left, right): return {**left, **right}  # later keys win",
    "Wer zu spät kommt, den bestraft das Leben; naïve façades décorent l'hôtel.",
    "Patients received 5 mg/kg daily, and adverse events were rare (p < 0.01).",
    "東京は日本の首都です。 Москва — столица России.",
    "http://example.org/a/b?c=d&e=%20f returned 404 after 30 s :-(",
    "He said that she had said that nobody would ever say such a thing again.",
)
LONGEST_WORDS: Final = 512
TYPICAL_LENGTH: Final = 64


def check_texts(max_tokens: int) -> list[str]:
    """Return texts from the empty one to one at a model's limit, growing by about a third each, all different."""
    words = " ".join(SENTENCES).split()
    texts, count = [""], 1
    while count <= min(max_tokens, LONGEST_WORDS):
        start = 7 * count
        texts.append(" ".join(words[(start + place) % len(words)] for place in range(count)))
        count += max(1, count // 3)
    return texts


def check_rows(tokeniser: Tokeniser, max_tokens: int) -> list[Tokens]:
    """Return the tokens of the check texts."""
    return tokeniser.tokenise(check_texts(max_tokens))


def typical_batch(rows: Sequence[Tokens], tokens: int, most_rows: int) -> list[Tokens]:
    """Return a batch as the batch former makes them, of at most so many tokens and rows, at least one row.

    Its rows are about `TYPICAL_LENGTH` tokens long, give or take an eighth: the longest check row, cut.
    """
    longest = max(rows, key=lambda row: len(row.ids))
    batch: list[Tokens] = []
    total = 0
    while len(batch) < most_rows:
        length = TYPICAL_LENGTH - len(batch) % (TYPICAL_LENGTH // 8)
        row = Tokens(ids=longest.ids[:length])
        total += len(row.ids)
        if batch and total > tokens:
            break
        batch.append(row)
    return batch


def batch_of(rows: Sequence[Tokens], tokens: int) -> list[Tokens]:
    """Return a batch of just so many tokens: rows of `TYPICAL_LENGTH`, and what is left."""
    longest = max(rows, key=lambda row: len(row.ids)).ids[:TYPICAL_LENGTH]
    full, rest = divmod(tokens, len(longest))
    return [Tokens(ids=longest)] * full + ([Tokens(ids=longest[:rest])] if rest else [])


def largest_difference(values: NDArray[np.float32], expected: NDArray[np.float32]) -> float:
    """Return the largest absolute difference, as a share of the largest expected number; infinity if none is finite."""
    if values.shape != expected.shape or not np.isfinite(values).all():
        return float("inf")
    scale = max(float(np.abs(expected).max()), 1e-30)
    return float(np.abs(values - expected).max()) / scale


def smallest_cosine(values: NDArray[np.float32], expected: NDArray[np.float32]) -> float:
    """Return the smallest cosine between rows and what is expected of them; -1 if any number is not finite."""
    if values.shape != expected.shape or not np.isfinite(values).all():
        return -1.0
    left, right = values.astype(np.float64), expected.astype(np.float64)
    lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    products = (left * right).sum(axis=1)
    return float(np.where(lengths > 0, products / np.maximum(lengths, 1e-300), 1.0).min())
