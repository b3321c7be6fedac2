"""What a model's own files say of limits, prompts and modules is what is served."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cordwood.errors import SettingsError
from cordwood_worker.backends.placement import Placement
from cordwood_worker.backends.sentence_model import load_sentence_model, position_limit
from tests.models import build_bert, queue_settings
from tests.worker.backends.running import embed

if TYPE_CHECKING:
    from pathlib import Path

CPU = Placement("cpu", "fp32")


def change_json(path: Path, **fields: Any) -> None:
    """Set fields of a JSON file; None removes one."""
    content = json.loads(path.read_text()) if path.exists() else {}
    content.update(fields)
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def test_max_seq_length_of_the_folder_is_honoured(tmp_path: Path) -> None:
    """Below what the model has positions for."""
    folder = build_bert(tmp_path)
    change_json(folder / "sentence_bert_config.json", max_seq_length=24)
    change_json(folder / "tokenizer_config.json", model_max_length=24)
    assert load_sentence_model("m", folder, CPU).max_tokens == 24


def test_c03_a_tokenizer_without_a_limit_is_bound_by_the_positions(tmp_path: Path) -> None:
    """Part c: 5,000 words give the vector of the text cut there, not an index error."""
    from cordwood_worker.backends.text_backend import TextBackend

    folder = build_bert(tmp_path, max_position_embeddings=64)
    change_json(folder / "tokenizer_config.json", model_max_length=None)
    change_json(folder / "sentence_bert_config.json", max_seq_length=None)
    backend = TextBackend.load(queue_settings(model=str(folder), device="cpu", precision="fp32"))
    assert backend.spec.max_tokens == 64
    long, cut = embed(backend, ["word " * 5_000, "word " * 62])
    assert np.abs(long - cut).max() <= 1e-5


def test_roberta_counts_positions_from_behind_the_padding_index() -> None:
    """A table of 66 rows with padding index 1 has room for 64 tokens."""
    from transformers import RobertaConfig, RobertaModel

    config = RobertaConfig(
        vocab_size=50, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
        max_position_embeddings=66, pad_token_id=1,
    )  # fmt: skip
    assert position_limit(RobertaModel(config)) == 64


def test_relative_positions_name_no_limit() -> None:
    """XLNet says -1, T5 nothing."""

    class Relative:
        """A model without a table of positions."""

        class config:  # noqa: N801 - the library's own name
            """Its configuration."""

            max_position_embeddings = -1

    assert position_limit(Relative()) is None


def test_default_prompt_and_dimension_of_the_configuration_are_used(tmp_path: Path) -> None:
    """As `encode` does, with the prompt left out of pooling."""
    from sentence_transformers import SentenceTransformer

    from cordwood_worker.backends.text_backend import TextBackend

    folder = build_bert(tmp_path)
    change_json(
        folder / "config_sentence_transformers.json",
        prompts={"passage": "passage: "},
        default_prompt_name="passage",
        truncate_dim=16,
    )
    change_json(folder / "1_Pooling" / "config.json", include_prompt=False)
    texts = ["wood", "a longer text about wood", ""]
    backend = TextBackend.load(queue_settings(model=str(folder), device="cpu", precision="fp32"))
    expected = SentenceTransformer(str(folder), device="cpu").encode(texts)
    assert backend.spec.dim == 16
    assert np.abs(embed(backend, texts) - expected).max() <= 1e-5


def test_code_of_the_models_own_is_not_run(tmp_path: Path) -> None:
    """A module class outside the library is refused."""
    folder = build_bert(tmp_path)
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["type"] = "evil.Pooling"
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(SettingsError, match="cannot be loaded"):
        load_sentence_model("m", folder, CPU)


def test_a_model_that_does_not_begin_with_a_transformer_is_refused(tmp_path: Path) -> None:
    """Its tokens would mean something else."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer, models

    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    static = StaticEmbedding(tokenizer, embedding_dim=4)
    SentenceTransformer(modules=[static], device="cpu").save(str(tmp_path / "s"), create_model_card=False)
    with pytest.raises(SettingsError, match="StaticEmbedding"):
        load_sentence_model("m", tmp_path / "s", CPU)
