"""A sentence-transformers model, loaded and checked, and what its configuration says of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from cordwood.errors import SettingsError

if TYPE_CHECKING:
    from pathlib import Path

    from cordwood.options import EmbedOptions
    from cordwood_worker.backends.placement import Placement

UNBOUNDED_MAX_TOKENS: Final = 8192
"""The limit of a model whose tokenizer, configuration and positions name none (relative positions)."""


@dataclass(frozen=True, slots=True)
class Prompting:
    """What a model puts before texts: its default prompt, all prompts by name, and whether pooling leaves them out."""

    default: str = ""
    by_name: Mapping[str, str] = field(default_factory=dict)
    is_left_out: bool = False

    def choose(self, options: EmbedOptions) -> str:
        """Return the prompt that is asked for; ValueError for a name the model does not have.

        Where pooling leaves the prompt out, its length is the batch's: then there is the default one alone.
        """
        prompt = self.default
        if options.prompt_name is not None:
            if options.prompt_name not in self.by_name:
                names = ", ".join(sorted(self.by_name)) or "none"
                raise ValueError(f"prompt_name {options.prompt_name!r} is not one of the model's: {names}")
            prompt = self.by_name[options.prompt_name]
        elif options.prompt is not None:
            prompt = options.prompt
        if self.is_left_out and prompt != self.default:
            raise ValueError("this model leaves prompts out of its pooling: it takes its default prompt alone")
        return prompt


@dataclass(frozen=True, slots=True)
class SentenceModel:
    """The modules to run in order, the tokenizer, and how inputs are prepared for them.

    `max_tokens` is the longest row. `prompt_tokens` is the length of the default prompt where pooling leaves it out,
    else 0. `dim` cuts the output where the configuration says so, else it is None. `normalizes` says that the last
    module makes unit vectors, and that nothing is cut off after it.
    """

    modules: tuple[Any, ...]
    tokenizer: Any
    max_tokens: int
    pad_id: int
    pads_left: bool
    takes_type_ids: bool
    prompting: Prompting
    prompt_tokens: int
    dim: int | None
    normalizes: bool


def load_sentence_model(name: str, folder: Path, placement: Placement) -> SentenceModel:
    """Load a model from its folder: safetensors only, none of its own code, in evaluation mode.

    The transformer runs in the precision of the placement and all modules after it in fp32. Raises SettingsError for
    a model that does not begin with a text transformer, or whose tokenizer is not a fast one.
    """
    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging as transformers_logging

    quiet: Any = transformers_logging  # its functions are untyped
    quiet.disable_progress_bar()
    try:
        model: Any = SentenceTransformer(
            str(folder),
            device=placement.device,
            trust_remote_code=False,
            local_files_only=True,
            model_kwargs={"use_safetensors": True, "dtype": placement.dtype},
        )
    except (ValueError, OSError) as error:
        raise SettingsError(f"model {name!r} cannot be loaded from {folder}: {error}") from error
    model.eval()
    modules = tuple(model.children())
    _check_first(name, modules[0])
    for module in modules[1:]:
        module.float()
    return _describe(model, modules)


def position_limit(transformer: Any) -> int | None:
    """Return how many tokens the model has positions for, None if its configuration names no limit.

    Models of the RoBERTa family count positions from the padding index + 1 on, so that a table of 514 has room for
    512 tokens; they are known by an embedding module with a padding index beside a table of positions.
    """
    positions = getattr(transformer.config, "max_position_embeddings", None)
    if not isinstance(positions, int) or positions <= 0:
        return None
    return positions - position_offset(transformer)


def position_offset(transformer: Any) -> int:
    """Return the position of a row's first token: behind the padding index for RoBERTa's family, else 0."""
    for module in transformer.modules():
        padding_index, table = getattr(module, "padding_idx", None), getattr(module, "position_embeddings", None)
        if isinstance(padding_index, int) and hasattr(table, "num_embeddings"):
            return padding_index + 1
    return 0


def _check_first(name: str, first: Any) -> None:
    from sentence_transformers.sentence_transformer.modules import Transformer

    if not isinstance(first, Transformer):
        kind = type(first).__name__
        raise SettingsError(f"model {name!r} begins with a {kind} module: only text transformers are served")
    if "text" not in first.modality_config or "message" in first.modality_config:
        raise SettingsError(f"model {name!r} wants chat messages or no text at all: only plain text is served")
    if not getattr(first.tokenizer, "is_fast", False):
        raise SettingsError(f"model {name!r} has no fast tokenizer")


def _describe(model: Any, modules: tuple[Any, ...]) -> SentenceModel:
    tokenizer = modules[0].tokenizer
    limits = [tokenizer.model_max_length, position_limit(modules[0].auto_model), UNBOUNDED_MAX_TOKENS]
    named = [limit for limit in limits[:2] if limit is not None and limit < 10**9]
    prompt = model.prompts.get(model.default_prompt_name) or "" if model.default_prompt_name else ""
    leaves_prompt_out = any(getattr(module, "include_prompt", True) is False for module in modules)
    return SentenceModel(
        modules=modules,
        tokenizer=tokenizer,
        max_tokens=int(min(named or limits[2:])),
        pad_id=tokenizer.pad_token_id or 0,
        pads_left=tokenizer.padding_side == "left",
        takes_type_ids="token_type_ids" in tokenizer.model_input_names,
        prompting=Prompting(prompt, {str(key): text or "" for key, text in model.prompts.items()}, leaves_prompt_out),
        prompt_tokens=_count_tokens(tokenizer, prompt) if prompt and leaves_prompt_out else 0,
        dim=model.truncate_dim,
        normalizes=type(modules[-1]).__name__ == "Normalize" and model.truncate_dim is None,
    )


def _count_tokens(tokenizer: Any, prompt: str) -> int:
    """Return the prompt's length without a trailing special token, as the library counts it."""
    ids = tokenizer(prompt)["input_ids"]
    return len(ids) - (1 if ids and ids[-1] in tokenizer.all_special_ids else 0)
