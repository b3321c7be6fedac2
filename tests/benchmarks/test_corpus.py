from __future__ import annotations

from statistics import mean

import pytest
from tokenizers import Tokenizer

from benchmarks.corpus import LONGEST, SHORTEST, SPECIAL_TOKENS, Corpus, build_corpus, draw_lengths, in_groups
from tests.models import minilm_folder


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """MiniLM's, without a limit."""
    found: Tokenizer = Tokenizer.from_file(str(minilm_folder() / "tokenizer.json"))
    found.no_padding()
    found.no_truncation()
    return found


@pytest.fixture(scope="module")
def corpus(tokenizer: Tokenizer) -> Corpus:
    """A small one."""
    return build_corpus(400, lambda word: len(tokenizer.encode(word).ids) - SPECIAL_TOKENS)


def test_drawn_lengths_are_log_normal_with_a_mean_of_62() -> None:
    """From 4 to 256, their median well under their mean, and the same ones again."""
    lengths = draw_lengths(20_000)
    assert (min(lengths), max(lengths)) == (SHORTEST, LONGEST)
    assert mean(lengths) == pytest.approx(62, abs=1.0)
    assert sorted(lengths)[10_000] == pytest.approx(46, abs=1.5)
    assert draw_lengths(100) == draw_lengths(100)


def test_texts_have_the_tokens_that_the_corpus_says(corpus: Corpus, tokenizer: Tokenizer) -> None:
    """As the tokenizer counts them, special tokens included."""
    assert [len(encoding.ids) for encoding in tokenizer.encode_batch(list(corpus.texts))] == list(corpus.lengths)


def test_texts_are_as_long_as_drawn_or_a_word_shorter(corpus: Corpus) -> None:
    """None is longer, and all are different."""
    drawn = draw_lengths(len(corpus.texts))
    assert all(SHORTEST <= length <= most for length, most in zip(corpus.lengths, drawn, strict=True))
    assert mean(drawn) - mean(corpus.lengths) < 2
    assert len(set(corpus.texts)) > 0.99 * len(corpus.texts)


def test_a_corpus_is_told_apart_by_its_digest(corpus: Corpus) -> None:
    """A part of it is another corpus."""
    assert corpus.digest == Corpus(corpus.texts, corpus.lengths).digest != corpus.sample(10).digest


def test_a_sample_is_as_long_on_average_and_in_order_of_arrival(corpus: Corpus) -> None:
    """Every n-th text by length, so that even a small one is close."""
    whole = corpus.tokens / len(corpus.texts)
    for count in (100, 25):
        part = corpus.sample(count)
        assert len(part.texts) == count
        assert part.tokens / count == pytest.approx(whole, rel=0.05)
        places = [corpus.texts.index(text) for text in part.texts]
        assert places == sorted(places)
    assert corpus.sample(10_000) is corpus


def test_groups_are_in_order_and_the_last_may_be_smaller() -> None:
    """Nothing is left out."""
    assert [list(group) for group in in_groups("abcde", 2)] == [["a", "b"], ["c", "d"], ["e"]]
