"""Prepacked layers compute what the layers compute, and blocks with them what the blocks did."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from cordwood_worker.backends.linears import PackedLinear, can_prepack, prepack, prepacking_pays

pytestmark = pytest.mark.skipif(
    "not __import__('cordwood_worker.backends.linears').backends.linears.can_prepack('cpu')",
    reason="this build of torch has no oneDNN",
)


def bert(activation: str = "gelu") -> Any:
    """A 2-layer BERT with random weights."""
    import torch
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        hidden_act=activation,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model: Any = BertModel(config)
        return model.eval()


def test_a_packed_layer_gives_the_layers_products() -> None:
    """With its bias, its GELU and a residual."""
    import torch

    linear = torch.nn.Linear(24, 40)
    values, other = torch.randn(7, 24), torch.randn(7, 40)
    with torch.inference_mode():
        plain = linear(values)
        assert (PackedLinear(linear)(values) - plain).abs().max() <= 1e-5
        gelu = PackedLinear(linear, "gelu", "none")(values)
        assert (gelu - torch.nn.functional.gelu(plain)).abs().max() <= 1e-5
        assert (PackedLinear(linear, "gelu", "none").product(values) - plain).abs().max() <= 1e-5
        assert (PackedLinear(linear).plus(values, other) - plain - other).abs().max() <= 1e-5


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu"])
def test_a_model_of_packed_layers_gives_the_same_hidden_states(activation: str) -> None:
    """GELU in both forms is fused, another activation is left alone, residuals are fused."""
    import torch

    model = bert(activation)
    ids = torch.arange(40).view(2, 20)
    with torch.inference_mode():
        expected = model(input_ids=ids).last_hidden_state
        packed = prepack(model)
        actual = model(input_ids=ids).last_hidden_state
    assert (actual - expected).abs().max() <= 1e-5
    assert len(packed) == sum(isinstance(module, torch.nn.Linear) for module in model.modules())
    fused = type(model.encoder.layer[0].intermediate.intermediate_act_fn).__name__ == "Identity"
    assert fused == (activation != "relu")


def test_the_layers_own_weights_take_no_memory_any_more() -> None:
    """There are not two copies of a model."""
    import torch

    model = bert()
    prepack(model)
    kinds = {module.weight.device.type for module in model.modules() if isinstance(module, torch.nn.Linear)}
    assert kinds == {"meta"}


@pytest.mark.parametrize(("theirs", "ours"), [(1.0, 2.0), (2.0, 1.0)])
def test_whether_prepacking_pays_is_measured(theirs: float, ours: float) -> None:
    """By a clock that tells torch's own product and the prepacked one apart: they are timed in turn."""
    import torch

    steps = itertools.cycle([0.0, theirs, 0.0, ours])
    times = itertools.accumulate(steps)
    assert prepacking_pays(torch.nn.Linear(64, 64), lambda: next(times)) is (ours < theirs)


def test_only_a_processor_can_prepack() -> None:
    """CUDA has products of its own."""
    assert not can_prepack("cuda:0")
