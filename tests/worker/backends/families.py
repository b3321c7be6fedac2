"""Small transformers of several families with random weights, as far as an export looks at a model."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from cordwood_worker.backends.sentence_model import Prompting, SentenceModel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

FAMILIES = ("bert", "roberta", "distilbert", "mpnet", "modernbert", "qwen3")
TRIED = tuple(family if family == "roberta" else pytest.param(family, marks=pytest.mark.chaos) for family in FAMILIES)
"""Each takes seconds to export: one with every run of the tests, the others with the long ones."""
PAD_IDS = {"roberta": 1, "mpnet": 1}
SIZES: dict[str, Any] = {
    "vocab_size": 200,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 66,
}


def build_family(family: str, *, pads_left: bool = False) -> SentenceModel:
    """Return a model of one of `FAMILIES` without a tokenizer, 64 tokens long at most."""
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(7)
        transformer = _build_transformer(family)
    return wrap(transformer, pad_id=PAD_IDS.get(family, 0), pads_left=pads_left, takes_type_ids=family == "bert")


def wrap(transformer: Any, *, pad_id: int = 0, pads_left: bool = False, takes_type_ids: bool = False) -> SentenceModel:
    """Return a transformer as the first module of a model that has no other."""
    return SentenceModel(
        modules=(SimpleNamespace(auto_model=transformer.eval()),),
        tokenizer=None,
        max_tokens=64,
        pad_id=pad_id,
        pads_left=pads_left,
        takes_type_ids=takes_type_ids,
        prompting=Prompting(),
        prompt_tokens=0,
        dim=None,
        normalizes=False,
    )


def greatest_difference(model: SentenceModel, transformer: Callable[[Mapping[str, Any]], Any]) -> float:
    """Return the largest difference to torch of any hidden state, over shapes that no export has seen."""
    import torch

    from cordwood_worker.backends.capture import sample_features

    differences = []
    for rows, longest in ((1, 64), (2, 2), (7, 40), (20, 3), (4, 1)):
        features = sample_features(model, rows, longest)
        attended = features["attention_mask"].bool()
        with torch.inference_mode():
            expected = model.modules[0].auto_model(**features).last_hidden_state
        given = transformer(features)
        assert given.shape == expected.shape
        assert given.dtype == torch.float32
        differences.append(float((expected - given)[attended].abs().max()))
    return max(differences)


def encode(model: SentenceModel, transformer: Callable[[Mapping[str, Any]], Any], texts: list[str]) -> NDArray[Any]:
    """Return the vectors of texts, by a transformer that is not torch's and the modules after it, which are."""
    import torch

    features = dict(
        model.tokenizer(texts, padding=True, truncation=True, max_length=model.max_tokens, return_tensors="pt")
    )
    with torch.inference_mode():
        features["token_embeddings"] = transformer(features)
        for module in model.modules[1:]:
            features = module(features)
    vectors: NDArray[Any] = features["sentence_embedding"].numpy()
    return vectors


def load_minilm() -> SentenceModel:
    """Return all-MiniLM-L6-v2 in fp32 on the CPU."""
    from cordwood_worker.backends.placement import Placement
    from cordwood_worker.backends.sentence_model import load_sentence_model
    from tests.models import MINILM, minilm_folder

    return load_sentence_model(MINILM, minilm_folder(), Placement("cpu", "fp32"))


def damage(path: Path) -> None:
    """Change one byte in the middle of a file, and leave its size."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def _build_transformer(family: str) -> Any:
    import transformers as library

    if family == "bert":
        return library.BertModel(library.BertConfig(**SIZES))
    if family == "roberta":
        return library.RobertaModel(library.RobertaConfig(**SIZES, pad_token_id=1))
    if family == "mpnet":
        return library.MPNetModel(library.MPNetConfig(**SIZES, pad_token_id=1))
    if family == "modernbert":
        names = ("pad_token_id", "bos_token_id", "cls_token_id", "eos_token_id", "sep_token_id")
        special: dict[str, Any] = dict(zip(names, (0, 1, 1, 2, 2), strict=True))
        return library.ModernBertModel(library.ModernBertConfig(**SIZES, **special, local_attention=16))
    if family == "qwen3":
        return library.Qwen3Model(library.Qwen3Config(**SIZES, num_key_value_heads=2, head_dim=8))
    sizes: dict[str, Any] = {"vocab_size": 200, "dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4}
    return library.DistilBertModel(library.DistilBertConfig(**sizes, max_position_embeddings=66))
