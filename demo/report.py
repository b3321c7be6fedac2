"""What the demo says at the end: how fast it was, how full the batches were, and answers to questions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from demo.corpus import Passage

QUESTIONS: Final = (
    "How do I wait until a thread has finished?",
    "How can I show the differences between two texts?",
    "How do I compute the average of some numbers?",
)
HITS: Final = 3


@dataclass(frozen=True, slots=True)
class Rates:
    """A run of `texts` in `seconds`, and the worker's counters for it."""

    texts: int
    seconds: float
    stats: Mapping[str, int]

    def lines(self) -> list[str]:
        """Return the figures, one a line."""
        batches, rows = self.stats.get("batches", 0), self.stats.get("rows", 0)
        tokens, padded = self.stats.get("tokens", 0), self.stats.get("padded_tokens", 0)
        return [
            f"{self.texts / self.seconds:9.1f} texts/s ({self.texts} texts in {self.seconds:.1f} s)",
            f"{tokens / self.seconds:9.1f} tokens/s ({tokens} tokens)",
            f"{rows / max(1, batches):9.1f} rows per batch on average ({batches} batches)",
            f"{100 * (1 - tokens / max(1, padded)):9.1f} % of the computed tokens were padding",
        ]


def answer_lines(
    questions: Sequence[str], asked: NDArray[Any], passages: Sequence[Passage], vectors: NDArray[Any]
) -> list[str]:
    """Return each question and its best passages; `asked` and `vectors` hold unit vectors, shape (n, dim)."""
    lines: list[str] = []
    for question, scores in zip(questions, asked @ vectors.T, strict=True):
        lines += ["", question]
        for index in np.argsort(-scores, kind="stable")[:HITS]:
            lines.append(f"  {scores[index]:.2f}  {passages[index].source}: {passages[index].text}")
    return lines
