"""Linear layers prepacked for the CPU, and what is fused into them: GELU, and the sum with the residual.

oneDNN's operators are torch's own (the ones that its compiler uses), called without compiling. They are found by the
structure of a model's blocks, not by its name; whoever calls `prepack` checks that the outputs stay the same.
"""

from __future__ import annotations

from inspect import signature
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ACTIVATED: Final = (("dense", "intermediate_act_fn"), ("lin1", "activation"))
"""Attributes of a block that holds a linear layer and the activation that follows it: BERT's family, DistilBERT."""
PRODUCT: Final = "_linear_pointwise"
REORDER: Final = "_reorder_linear_weight"
TYPICAL_TOKENS: Final = 1024
TRIALS: Final = 7


class PackedLinear:
    """The product of one linear layer with its weights in oneDNN's own layout. Calls take (…, in) and give (…, out)."""

    def __init__(self, linear: Any, activation: str = "none", algorithm: str = "none") -> None:
        import torch

        self.in_features = int(linear.in_features)
        self._operator: Any = getattr(torch.ops.mkldnn, PRODUCT)
        self._weight = getattr(torch.ops.mkldnn, REORDER)(linear.weight.detach(), TYPICAL_TOKENS)
        self._bias = None if linear.bias is None else linear.bias.detach()
        self._activation = activation
        self._algorithm = algorithm

    def __call__(self, values: Any) -> Any:
        """Multiply, add the bias, and apply the activation."""
        return self._operator(values, self._weight, self._bias, self._activation, [], self._algorithm)

    def product(self, values: Any) -> Any:
        """Multiply and add the bias, whatever a call fuses with that."""
        return self._operator(values, self._weight, self._bias, "none", [], "none")

    def plus(self, values: Any, other: Any) -> Any:
        """Multiply, and add the bias and another tensor of the output's shape."""
        return self._operator.binary(values, other, self._weight, self._bias, "add")


def can_prepack(device: str) -> bool:
    """Whether this build of torch has the operators, for a model on this device."""
    import torch

    mkldnn: Any = torch.backends.mkldnn  # its functions are untyped
    return (
        device == "cpu"
        and mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, PRODUCT)
        and hasattr(torch.ops.mkldnn, REORDER)
    )


def prepacking_pays(linear: Any, clock: Callable[[], float] = perf_counter) -> bool:
    """Whether the prepacked product of a layer is no slower than torch's own, measured in turn on this machine.

    torch multiplies fp32 with MKL, which on AMD's processors reaches less than half of what oneDNN does (190 against
    450 GFLOP/s on 2 cores of Zen 5); on Intel's they are near each other.
    """
    import torch

    values = torch.randn(TYPICAL_TOKENS, linear.in_features, dtype=linear.weight.dtype)
    packed = PackedLinear(linear)
    with torch.inference_mode():
        pairs = [(_seconds(linear, values, clock), _seconds(packed, values, clock)) for _ in range(TRIALS)]
    return median(ours / theirs for theirs, ours in pairs[1:]) <= 1.0


def prepack(transformer: Any) -> dict[int, PackedLinear]:
    """Replace the forward of every linear layer by a prepacked one, fused where the structure allows.

    Return the new ones by the `id` of the layer that each stands for.

    The layers' own weights go to the meta device, so that they take no memory: the model cannot be trained or saved.
    """
    import torch

    packed: dict[int, PackedLinear] = {}
    for block, linear, activation, algorithm in _activated(transformer):
        packed[id(linear)] = PackedLinear(linear, "gelu", algorithm)
        setattr(block, activation, torch.nn.Identity())
    for module in transformer.modules():
        if isinstance(module, torch.nn.Linear) and id(module) not in packed:
            packed[id(module)] = PackedLinear(module)
    for block in transformer.modules():
        if _adds_residual(block):
            block.forward = _residual_forward(packed[id(block.dense)], block.LayerNorm)
    for module in transformer.modules():
        if id(module) in packed:
            module.forward = packed[id(module)]
            module.weight = torch.nn.Parameter(module.weight.detach().to("meta"), requires_grad=False)
    return packed


def _activated(transformer: Any) -> Iterator[tuple[Any, Any, str, str]]:
    """Yield the blocks that apply GELU to the output of a linear layer: block, layer, attribute, oneDNN's algorithm."""
    import torch

    for block in list(transformer.modules()):
        for linear_name, activation_name in ACTIVATED:
            linear, activation = getattr(block, linear_name, None), getattr(block, activation_name, None)
            algorithm = _gelu_algorithm(activation)
            if isinstance(linear, torch.nn.Linear) and algorithm is not None:
                yield block, linear, activation_name, algorithm


def _gelu_algorithm(activation: Any) -> str | None:
    import torch

    if isinstance(activation, torch.nn.GELU):
        return str(activation.approximate)
    return {"GELUActivation": "none", "NewGELUActivation": "tanh", "GELUTanh": "tanh"}.get(type(activation).__name__)


def _adds_residual(block: Any) -> bool:
    """Whether a block is BERT's kind of output: LayerNorm(dropout(dense(hidden_states)) + input_tensor)."""
    import torch

    if not isinstance(getattr(block, "dense", None), torch.nn.Linear):
        return False
    if not isinstance(getattr(block, "LayerNorm", None), torch.nn.LayerNorm):
        return False
    return list(signature(block.forward).parameters) == ["hidden_states", "input_tensor"]


def _residual_forward(linear: PackedLinear, norm: Any) -> Callable[[Any, Any], Any]:
    def forward(hidden_states: Any, input_tensor: Any) -> Any:
        return norm(linear.plus(hidden_states, input_tensor))

    return forward


def _seconds(call: Any, values: Any, clock: Callable[[], float]) -> float:
    began = clock()
    call(values)
    return clock() - began
