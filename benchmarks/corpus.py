"""The texts of the benchmarks: English prose cut to log-normal lengths, the same ones for the same Python and seed.

The words are those of the demo's passages, in their order, so that texts look like language and not like a list.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import cycle
from typing import Final

from demo.corpus import load_passages

SHORTEST: Final = 4
LONGEST: Final = 256
LOG_MEAN: Final = 3.83
LOG_DEVIATION: Final = 0.8
"""Cut to 4 to 256 these give a mean of 62 tokens and a median of 46."""
SPECIAL_TOKENS: Final = 2
SEED: Final = 20260

WordTokens = Callable[[str], int]
"""How many tokens a word has: WordPiece splits a text into words first, so a text has the sum of its words' tokens."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """Texts in order of arrival, and how many tokens each has, special tokens included."""

    texts: tuple[str, ...]
    lengths: tuple[int, ...]

    @property
    def tokens(self) -> int:
        """The tokens of all texts."""
        return sum(self.lengths)

    @property
    def digest(self) -> str:
        """Tells corpora apart: runs can be compared where it is the same."""
        return hashlib.blake2b("\n".join(self.texts).encode(), digest_size=4).hexdigest()

    def sample(self, count: int) -> Corpus:
        """Return `count` texts with the same distribution of lengths, in order of arrival; all if there are no more.

        Every n-th text by length is taken, so that a small sample is as long on average as the whole.
        """
        size = len(self.texts)
        if count >= size:
            return self
        by_length = sorted(range(size), key=lambda place: (self.lengths[place], place))
        chosen = sorted(by_length[(2 * number + 1) * size // (2 * count)] for number in range(count))
        return Corpus(tuple(self.texts[place] for place in chosen), tuple(self.lengths[place] for place in chosen))


def draw_lengths(count: int, seed: int = SEED) -> list[int]:
    """Return log-normal lengths from `SHORTEST` to `LONGEST` tokens."""
    draw = random.Random(seed)
    lengths = (round(draw.lognormvariate(LOG_MEAN, LOG_DEVIATION)) for _ in range(count))
    return [min(LONGEST, max(SHORTEST, length)) for length in lengths]


def build_corpus(count: int, word_tokens: WordTokens, seed: int = SEED) -> Corpus:
    """Return `count` texts of drawn lengths. A text is shorter than drawn where its next word would not fit."""
    words = _words(cache(word_tokens))
    texts: list[str] = []
    lengths: list[int] = []
    for length in draw_lengths(count, seed):
        text, tokens = _cut(words, length)
        texts.append(text)
        lengths.append(tokens)
    return Corpus(tuple(texts), tuple(lengths))


def _words(word_tokens: WordTokens) -> Iterator[tuple[str, int]]:
    """Yield the words of the passages and their tokens, over and over."""
    prose = [word for passage in load_passages() for word in passage.text.split()]
    counted = [(word, word_tokens(word)) for word in prose]
    return cycle([(word, tokens) for word, tokens in counted if tokens > 0])


def _cut(words: Iterator[tuple[str, int]], length: int) -> tuple[str, int]:
    """Take words up to a length; those that would exceed it are passed over while the text is too short."""
    chosen, tokens = [], SPECIAL_TOKENS
    while tokens < length:
        word, more = next(words)
        if tokens + more <= length:
            chosen.append(word)
            tokens += more
        elif tokens >= SHORTEST:
            break
    return " ".join(chosen), tokens


def in_groups(texts: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    """Yield groups of `size` texts in order of arrival, the last one smaller if it must be."""
    for start in range(0, len(texts), size):
        yield texts[start : start + size]
