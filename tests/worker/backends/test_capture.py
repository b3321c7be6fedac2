"""A transformer is captured whole or refused, and a runtime that computes something else is found out."""

from __future__ import annotations

from typing import Any

import pytest

from cordwood.errors import SettingsError
from cordwood_worker.backends.capture import capture, check_agreement, sample_features
from tests.worker.backends.families import build_family, wrap


def test_sample_rows_are_padded_on_the_models_side() -> None:
    """With its own padding ID, which no token has."""
    features = sample_features(build_family("roberta", pads_left=True), 2, 5)
    assert features["attention_mask"].tolist() == [[1, 1, 1, 1, 1], [0, 0, 0, 1, 1]]
    assert ((features["input_ids"] == 1) == (features["attention_mask"] == 0)).all()
    assert set(sample_features(build_family("bert"), 1, 1)) == {"input_ids", "attention_mask", "token_type_ids"}


def test_a_captured_decoder_has_its_cache_back() -> None:
    """It is only put aside while torch looks."""
    model = build_family("qwen3")
    before = model.modules[0].auto_model.config.use_cache
    capture(model)
    assert before
    assert model.modules[0].auto_model.config.use_cache


def test_weights_that_are_not_fp32_are_not_exported() -> None:
    """A cache of rounded weights would serve every worker after this one."""
    model = build_family("bert")
    model.modules[0].auto_model.bfloat16()
    with pytest.raises(ValueError, match="bfloat16"):
        capture(model)


def test_a_model_that_torch_cannot_capture_is_refused_by_name() -> None:
    """A branch on the contents of a batch is in no graph."""
    import transformers

    bert: Any = transformers.BertModel  # untyped where it is subclassed

    class Fickle(bert):  # type: ignore[misc, unused-ignore]
        """Does something else with every batch."""

        def forward(self, input_ids: Any = None, **others: Any) -> Any:
            """Look at the batch first."""
            return super().forward(input_ids[: int(input_ids.sum()) % 3 + 1], **others)

    config = build_family("bert").modules[0].auto_model.config
    with pytest.raises(SettingsError, match=r"Fickle of .* cannot be captured by torch.export: "):
        capture(wrap(Fickle(config)))


@pytest.mark.parametrize("fault", ["no mask", "nan"])
def test_a_wrong_graph_is_refused(fault: str) -> None:
    """One that has lost its mask, and one that gives NaN."""
    import torch

    model = build_family("bert")

    def transform(features: Any) -> Any:
        mask = torch.ones_like(features["attention_mask"])
        with torch.inference_mode():
            hidden = model.modules[0].auto_model(**{**features, "attention_mask": mask}).last_hidden_state
        return hidden * float("nan") if fault == "nan" else hidden

    with pytest.raises(SettingsError, match="comes out wrong on paper"):
        check_agreement(model, transform, "paper")
