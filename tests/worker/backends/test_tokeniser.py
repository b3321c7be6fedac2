"""Cutting a text before it is tokenised never changes the tokens that are kept."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

import pytest

from cordwood.options import EmbedOptions
from cordwood_worker.backends.sentence_model import Prompting
from cordwood_worker.backends.tokeniser import CHARACTERS_PER_TOKEN, Tokeniser

if TYPE_CHECKING:
    from cordwood_worker.backends.text_backend import TextBackend

FIRST_CUT = 256 * CHARACTERS_PER_TOKEN


def library_ids(library: Any, text: str) -> list[int]:
    """Tokenise the whole text as the library does."""
    ids: list[int] = library.tokenizer(text, truncation="longest_first")["input_ids"]
    return ids


@pytest.mark.parametrize(
    "text",
    [
        "word " * 5_000,
        "." * 5_000,
        "中" * 5_000,
        "a" * 5_000 + " then more " * 500,
        " " * 20_000 + "late words " * 300,
        "\u200b" * 20_000 + "x",
        "e\u0301" * 3_000 + " é" * 400,
        "x" * (FIRST_CUT - 3) + " [SEP] [MASK] " * 200,
        "\n".join("a" * 150 for _ in range(400)),
        "unaffable-ly, " * 1_000,
    ],
    ids=["words", "dots", "cjk", "one long word", "blanks", "zero width", "accents", "specials", "unknowns", "pieces"],
)
def test_long_texts_have_the_tokens_that_the_library_keeps(backend: TextBackend, library: Any, text: str) -> None:
    """Texts that look different where they are cut, at any number of characters per token."""
    [tokens] = backend.tokenise([text])
    assert list(tokens.ids) == library_ids(library, text)


def test_random_texts_of_every_kind_have_the_librarys_tokens(backend: TextBackend, library: Any) -> None:
    """Runs of blanks, marks, letters and unknowns, of lengths around the first cut."""
    rng = random.Random(5)
    parts = [
        "a",
        "ab ",
        " ",
        "\t",
        ".",
        "中",
        "é",
        "e\u0301",
        "😀",
        "[SEP]",
        "\u200b",
        "0123",
        "running",
        "\u0338",
        "=",
    ]
    texts = ["".join(rng.choice(parts) * rng.randint(1, 400) for _ in range(rng.randint(1, 40))) for _ in range(60)]
    for text, tokens in zip(texts, backend.tokenise(texts), strict=True):
        whole = library.tokenizer(text)["input_ids"]
        assert list(tokens.ids) == library_ids(library, text)
        assert tokens.truncated == (len(whole) > 256)


def test_max_seq_length_is_the_limit_and_truncation_is_told(backend: TextBackend) -> None:
    """256 tokens of this model with its special ones; one word fewer is whole."""
    whole, cut = backend.tokenise(["word " * 254, "word " * 255])
    assert (len(whole.ids), whole.truncated) == (256, False)
    assert (len(cut.ids), cut.truncated) == (256, True)


def test_a_million_characters_cost_no_more_than_what_is_kept(backend: TextBackend) -> None:
    """Full tokenising takes 1 to 5 seconds for each of these."""
    began = time.perf_counter()
    tokens = backend.tokenise(["." * 1_000_000, "a " * 500_000, "中" * 1_000_000])
    assert time.perf_counter() - began < 1
    assert all(item.truncated and len(item.ids) == 256 for item in tokens)


def test_type_ids_are_left_out_where_they_are_all_zero(backend: TextBackend) -> None:
    """A single text of BERT has only zeros."""
    [tokens] = backend.tokenise(["a text"])
    assert tokens.type_ids is None


def test_a_pair_is_refused(backend: TextBackend) -> None:
    """Embed takes single texts, and the error says which input is none."""
    with pytest.raises(ValueError, match="input 1 is a pair"):
        backend.tokenise(["a text", ("a", "pair")])


def test_the_librarys_own_tokenizer_is_not_touched(library: Any) -> None:
    """Ours is a copy: the library's keeps its settings whatever ours are."""
    before = library.tokenizer("word " * 300, padding=False)["input_ids"]
    ours = Tokeniser(library.tokenizer, max_tokens=16, pad_id=0)
    assert [len(tokens.ids) for tokens in ours.tokenise(["word " * 300])] == [16]
    assert library.tokenizer("word " * 300, padding=False)["input_ids"] == before


def test_a_prompt_comes_before_every_text(library: Any) -> None:
    """As `encode(prompt=…)` puts it."""
    ours = Tokeniser(library.tokenizer, Prompting("query: "), max_tokens=16, pad_id=0)
    assert list(ours.tokenise(["wood"])[0].ids) == library.tokenizer("query: wood")["input_ids"]


def test_a_text_without_tokens_is_one_padding_token() -> None:
    """Tokenizers without special tokens make nothing of a blank."""
    from tokenizers import Tokenizer, models

    class Bare:
        """The least that a tokenizer offers."""

        backend_tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
        truncation_side = "right"

    [tokens] = Tokeniser(Bare(), max_tokens=4, pad_id=3).tokenise([""])
    assert list(tokens.ids) == [3]


def test_a_tokenizer_that_keeps_the_end_sees_the_whole_text(library: Any) -> None:
    """Nothing may be cut at the right where truncation is at the left."""

    class KeepsEnd:
        """MiniLM's tokenizer, truncating at the left."""

        backend_tokenizer = library.tokenizer.backend_tokenizer
        truncation_side = "left"

    text = "word " * 1_000 + "end"
    [tokens] = Tokeniser(KeepsEnd(), max_tokens=8, pad_id=0).tokenise([text])
    assert list(tokens.ids)[-2:] == library.tokenizer("end")["input_ids"][-2:]
    assert tokens.truncated


def test_a_text_is_cut_at_the_end_that_is_asked_for_or_refused(library: Any) -> None:
    """Whatever the tokenizer's own way; what is not too long is the same either way."""
    ours = Tokeniser(library.tokenizer, max_tokens=8, pad_id=0)
    text = "one " + "word " * 1_000 + "end"
    first, last = library.tokenizer("one")["input_ids"], library.tokenizer("end")["input_ids"]
    [right] = ours.tokenise([text], EmbedOptions(truncation="right"))
    [left] = ours.tokenise([text], EmbedOptions(truncation="left"))
    assert list(right.ids)[:2] == first[:2]
    assert list(left.ids)[-2:] == last[-2:]
    assert (len(right.ids), right.truncated, len(left.ids), left.truncated) == (8, True, 8, True)
    with pytest.raises(ValueError, match="input 1 has more than the model's 8 tokens"):
        ours.tokenise(["short", text], EmbedOptions(truncation="refuse"))
    for truncation in ("right", "left", "refuse"):
        assert ours.tokenise(["short"], EmbedOptions(truncation=truncation)) == ours.tokenise(["short"])


def test_prompts_are_the_models_by_name_or_the_callers_own(library: Any) -> None:
    """By default the model's default one; an empty one leaves it out."""
    ours = Tokeniser(library.tokenizer, Prompting("a ", {"query": "b ", "none": ""}), max_tokens=16, pad_id=0)

    def text_of(options: EmbedOptions) -> str:
        return str(library.tokenizer.decode(list(ours.tokenise(["wood"], options)[0].ids), skip_special_tokens=True))

    assert text_of(EmbedOptions()) == "a wood"
    assert text_of(EmbedOptions(prompt_name="query")) == "b wood"
    assert text_of(EmbedOptions(prompt="c: ")) == "c : wood"
    assert text_of(EmbedOptions(prompt="")) == text_of(EmbedOptions(prompt_name="none")) == "wood"
    with pytest.raises(ValueError, match="'passage' is not one of the model's: none, query"):
        text_of(EmbedOptions(prompt_name="passage"))


def test_a_model_that_leaves_prompts_out_of_its_pooling_takes_its_default_one_alone(library: Any) -> None:
    """Of another length the mask would be wrong, silently."""
    ours = Tokeniser(library.tokenizer, Prompting("a ", {"same": "a "}, is_left_out=True), max_tokens=16, pad_id=0)
    assert ours.tokenise(["x"], EmbedOptions(prompt_name="same")) == ours.tokenise(["x"])
    with pytest.raises(ValueError, match="leaves prompts out"):
        ours.tokenise(["x"], EmbedOptions(prompt="b "))
