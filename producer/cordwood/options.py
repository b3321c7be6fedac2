"""How a job's inputs are to be embedded: checked where the job is made, and again by the worker that gets it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Self

from cordwood.errors import InvalidInput

TRUNCATIONS: Final = ("right", "left", "refuse")
OUTPUTS: Final = ("float32", "float16", "binary", "ubinary")
BITS: Final = frozenset({"binary", "ubinary"})
MAX_PROMPT_BYTES: Final = 2048
MAX_DIM: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedOptions:
    """What is done with the texts of an embed job; by default what the model's own configuration says.

    `prompt` is put before each text; `prompt_name` names one of the model's prompts, such as `query` or `document`; an
    empty `prompt` leaves out the model's default one. `truncation` says which end of a text over the model's limit is
    cut off: `right`, `left`, or `refuse` to fail the job instead. `dim` keeps the first so many numbers of each vector,
    for models trained for that (Matryoshka), and makes unit vectors of them again if the model gives such. `normalize`
    makes unit vectors in any case. `output` is how vectors come back: `float32`, `float16`, or one bit a number, which
    is 1 where it is above 0, packed eight to a byte: `ubinary` as uint8, `binary` as int8 that is 128 less.

    Raises InvalidInput, naming the option and its value.
    """

    prompt: str | None = None
    prompt_name: str | None = None
    truncation: str | None = None
    dim: int | None = None
    normalize: bool = False
    output: str = "float32"

    def __post_init__(self) -> None:
        for name in ("prompt", "prompt_name"):
            _check_text(name, getattr(self, name))
        if self.prompt is not None and self.prompt_name is not None:
            raise InvalidInput(f"prompt {self.prompt!r} and prompt_name {self.prompt_name!r}: give one of them")
        if self.truncation is not None and self.truncation not in TRUNCATIONS:
            raise InvalidInput(f"truncation {self.truncation!r} is not one of {', '.join(TRUNCATIONS)}")
        if self.dim is not None and (type(self.dim) is not int or not 1 <= self.dim <= MAX_DIM):
            raise InvalidInput(f"dim {self.dim!r} is not a whole number from 1 to {MAX_DIM}")
        if type(self.normalize) is not bool:
            raise InvalidInput(f"normalize {self.normalize!r} is not True or False")
        if self.output not in OUTPUTS:
            raise InvalidInput(f"output {self.output!r} is not one of {', '.join(OUTPUTS)}")

    @property
    def dtype(self) -> str:
        """The name of the numpy dtype of the vectors."""
        return {"binary": "int8", "ubinary": "uint8"}.get(self.output, self.output)

    def width(self, dim: int) -> int:
        """How many values a vector has, of a model whose own have `dim`."""
        kept = dim if self.dim is None else min(dim, self.dim)
        return -(-kept // 8) if self.output in BITS else kept

    def to_wire(self) -> dict[str, Any]:
        """The options that differ from the defaults."""
        return {each.name: value for each in fields(self) if (value := getattr(self, each.name)) != each.default}

    @classmethod
    def from_wire(cls, given: Mapping[str, Any]) -> Self:
        """Read options; raises InvalidInput for an unknown one or a value that is not allowed."""
        unknown = given.keys() - {each.name for each in fields(cls)}
        if unknown:
            raise InvalidInput(f"embed takes no option {min(unknown)!r}")
        return cls(**given)


def _check_text(name: str, text: object) -> None:
    if text is None:
        return
    if not isinstance(text, str):
        raise InvalidInput(f"{name} must be a str, not {type(text).__name__}")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidInput(f"{name} has a lone surrogate") from None
    if size > MAX_PROMPT_BYTES:
        raise InvalidInput(f"{name} has {size} bytes, over the limit of {MAX_PROMPT_BYTES}")


DEFAULT_OPTIONS: Final = EmbedOptions()
