"""Attention over rows that lie end to end, registered with transformers' attention interface.

A model that is loaded with the implementation `cordwood_packed` hands its projected queries, keys and values to
`attend`, and passes on the keyword `packing` that its forward was called with. So any model that uses the interface
runs without padding, and none is re-implemented. (transformers, "Attention Interface"; the mask function returns None,
as the rows' bounds say all.)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from cordwood_worker.backends.packing import Group

IMPLEMENTATION: Final = "cordwood_packed"
LONGEST_BY_PRODUCTS: Final = {"fp32": 64, "bf16": 1024, "fp16": 1024}
"""Up to this width batched products beat SDPA's flash kernel on a CPU, which is slow at few tokens and small heads.

Zen 5, 12 heads of 32, 2,048 tokens, ms by width 32 / 64 / 128 / 256: bf16 products 0.8, 1.1, 2.2, 3.8, flash 1.7, 2.4,
4.0, 6.0; fp32 products 1.5, 2.8, 6.4, 13.5, flash 2.2, 2.9, 4.2, 6.0.
"""


@dataclass(frozen=True, slots=True)
class GroupedAttention:
    """How the rows of one batch attend: by groups of near-equal length, each row to itself alone.

    `gather` and `scatter` are the indices of `Packing`, `masks` has for each group None or what is added to its scores,
    shape (rows, 1, 1, width). `workspace` has the buffers: queries, keys, values and outputs of all cells, shape
    (cells × heads, size) each, and room for the scores of the largest group.
    """

    groups: tuple[Group, ...]
    masks: tuple[Any, ...]
    gather: Any
    scatter: Any
    by_products_to: int
    workspace: tuple[Any, ...] = field(default=())

    def attend(self, query: Any, key: Any, value: Any, scaling: float, window: int | None) -> Any:
        """Return the outputs, shape (tokens, heads, size), of inputs of shape (1, heads, tokens, size)."""
        import torch

        heads, tokens, size = query.shape[1:]
        spaces = self.workspace or (None,) * 5
        lines = [tensor[0].transpose(0, 1).reshape(tokens * heads, size) for tensor in (query, key, value)]
        queries, keys, values = (
            torch.index_select(line, 0, self.gather, out=space) for line, space in zip(lines, spaces[:3], strict=True)
        )
        outputs = torch.empty_like(queries) if spaces[3] is None else spaces[3]
        for group, mask in zip(self.groups, self.masks, strict=True):
            span = slice(group.cell * heads, (group.cell + group.rows * group.width) * heads)
            shape = (group.rows, heads, group.width, size)
            parts = tuple(tensor[span].view(shape) for tensor in (queries, keys, values, outputs))
            hidden = _windowed(mask, group.width, window, queries)
            if group.width <= self.by_products_to:
                _by_products(parts, hidden, scaling, spaces[4])
            else:
                _by_kernel(parts, hidden, scaling)
        return torch.index_select(outputs, 0, self.scatter).view(tokens, heads, size)


@dataclass(frozen=True, slots=True)
class VariableLengthAttention:
    """How the rows of one batch attend on CUDA in half precision: by torch's own variable-length flash attention."""

    bounds: Any
    longest: int

    def attend(self, query: Any, key: Any, value: Any, scaling: float, window: int | None) -> Any:
        """Return the outputs, shape (tokens, heads, size), of inputs of shape (1, heads, tokens, size)."""
        from torch.nn.attention import varlen

        call: Any = varlen.varlen_attn
        lines = [tensor[0].transpose(0, 1) for tensor in (query, key, value)]
        bounds, longest = self.bounds, self.longest
        span = (-1, -1) if window is None else (window - 1, window - 1)
        return call(*lines, bounds, bounds, longest, longest, scale=scaling, window_size=span)


def register() -> None:
    """Make the implementation known to transformers; calling it again changes nothing."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(IMPLEMENTATION, attend_packed)
    AttentionMaskInterface.register(IMPLEMENTATION, no_mask)


def attend_packed(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, scaling: float | None = None, **options: Any
) -> tuple[Any, None]:
    """Attend as transformers asks for it: shapes (1, heads, tokens, size) in, (1, tokens, heads, size) out."""
    del module, attention_mask
    packing: GroupedAttention | VariableLengthAttention = options["packing"]
    factor = query.shape[-1] ** -0.5 if scaling is None else scaling
    output = packing.attend(query, key, value, factor, options.get("sliding_window"))
    return output.unsqueeze(0), None


def no_mask(*_arguments: object, **_options: object) -> None:
    """Say that attention needs no mask."""


def _by_products(parts: tuple[Any, ...], mask: Any, scaling: float, space: Any) -> None:
    import torch

    query, key, value, output = (part.flatten(0, 1) for part in parts)
    query.mul_(scaling)
    count, width, _ = query.shape
    scores = None if space is None else space[: count * width * width].view(count, width, width)
    scores = torch.bmm(query, key.transpose(1, 2), out=scores)
    if mask is not None:
        rows = parts[0].shape[0]
        scores.view(rows, count // rows, width, width).add_(mask)
    torch.softmax(scores, -1, out=scores)
    torch.bmm(scores, value, out=output)


def _by_kernel(parts: tuple[Any, ...], mask: Any, scaling: float) -> None:
    import torch

    query, key, value, output = parts
    output.copy_(torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling))


def _windowed(mask: Any, width: int, window: int | None, like: Any) -> Any:
    """Add to a mask that tokens at a distance of `window` or more do not see each other."""
    import torch

    if window is None or width < window:
        return mask
    place = torch.arange(width, device=like.device)
    far = (place[:, None] - place).abs() >= window
    band = torch.zeros(width, width, dtype=like.dtype, device=like.device).masked_fill_(far, float("-inf"))
    return band if mask is None else mask + band
