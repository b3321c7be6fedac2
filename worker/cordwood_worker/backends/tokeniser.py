"""Texts to token IDs, exactly as the library would, at a cost that does not grow with what is cut off."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Final

from cordwood.options import DEFAULT_OPTIONS
from cordwood_worker.backends.sentence_model import Prompting
from cordwood_worker.batch import Tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cordwood.job import Input
    from cordwood.options import EmbedOptions

CHARACTERS_PER_TOKEN: Final = 8
"""How many characters are looked at first for each token that is kept. English has 4 to 5 a token."""
GROWTH: Final = 8
"""How many times more are looked at when that was not enough; 8 wastes at most 1/7 of the last look."""


class Tokeniser:
    """A fast tokenizer of its own, shared with nobody, which truncates at `max_tokens` and never pads.

    `prompting` says what is put before every text. `pad_id` stands for a text that has no tokens at all.

    A long text is cut before it is tokenised (1e6 characters take seconds). No number of characters per token is safe:
    a word of a million letters is one token, a million blanks are none. So the cut is checked: tokenizers split a text
    into words from left to right before they split words into tokens, and where a word ends depends on nothing
    further right than the next word. The kept tokens are therefore those of the whole text if they end before the
    last word of the cut; otherwise a longer cut is tried, in the end the whole text.
    """

    def __init__(self, tokenizer: Any, prompting: Prompting | None = None, *, max_tokens: int, pad_id: int) -> None:
        self._tokenizer = tokenizer
        self._prompting = Prompting() if prompting is None else prompting
        self._max_tokens = max_tokens
        self._first_cut = max_tokens * CHARACTERS_PER_TOKEN
        self._pad_id = pad_id
        self._by_side = {side: self._make(side) for side in {tokenizer.truncation_side, "right"}}

    def tokenise(self, inputs: Sequence[Input], options: EmbedOptions = DEFAULT_OPTIONS) -> list[Tokens]:
        """Return the tokens of each text, in order.

        Raises ValueError for a pair of texts, for a prompt that the model does not have, and with `truncation` of
        `refuse` for a text that is too long.
        """
        prompt = self._prompting.choose(options)
        texts = [prompt + single_text(item, index) for index, item in enumerate(inputs)]
        refuses = options.truncation == "refuse"
        side = "right" if refuses else options.truncation or self._tokenizer.truncation_side
        own = self._of_side(side)
        cut = [text[: self._first_cut] if side == "right" else text for text in texts]
        tokens = [
            self._tokens(encoding if len(part) == len(text) or _is_settled(encoding) else self._look_further(own, text))
            for text, part, encoding in zip(texts, cut, own.encode_batch_fast(cut), strict=True)
        ]
        over = next((index for index, item in enumerate(tokens) if refuses and item.truncated), None)
        if over is not None:
            raise ValueError(f"input {over} has more than the model's {self._max_tokens} tokens, and is not to be cut")
        return tokens

    def _of_side(self, side: str) -> Any:
        if side not in self._by_side:
            self._by_side[side] = self._make(side)
        return self._by_side[side]

    def _make(self, side: str) -> Any:
        """Make a tokenizer that cuts texts at this end."""
        from tokenizers import Tokenizer

        own: Any = Tokenizer.from_str(self._tokenizer.backend_tokenizer.to_str())
        own.encode_special_tokens = bool(getattr(self._tokenizer, "split_special_tokens", False))
        own.no_padding()
        own.enable_truncation(self._max_tokens, strategy="longest_first", direction=side)
        return own

    def _look_further(self, own: Any, text: str) -> Any:
        size = self._first_cut * GROWTH
        while size < len(text):
            encoding = own.encode(text[:size])
            if _is_settled(encoding):
                return encoding
            size *= GROWTH
        return own.encode(text)

    def _tokens(self, encoding: Any) -> Tokens:
        type_ids = encoding.type_ids
        return Tokens(
            ids=array("i", encoding.ids or [self._pad_id]),
            type_ids=array("i", type_ids) if any(type_ids) else None,
            truncated=bool(encoding.overflowing),
        )


def single_text(item: Input, index: int) -> str:
    """Return the input if it is one text; ValueError, with its position, for a pair of texts."""
    if isinstance(item, str):
        return item
    raise ValueError(f"input {index} is a pair of texts: embed takes single texts")


def _is_settled(encoding: Any) -> bool:
    """Whether more text to the right could change nothing in the tokens that were kept."""
    if not encoding.overflowing:
        return False
    kept, last = _last_word(encoding), _last_word(encoding.overflowing[-1])
    return kept is not None and last is not None and kept < last


def _last_word(encoding: Any) -> int | None:
    return next((word for word in reversed(encoding.word_ids) if word is not None), None)
