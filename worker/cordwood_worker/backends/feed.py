"""From tokens to what a transformer takes: staged in buffers of a pool, padded or end to end, on the device."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from cordwood_worker.backends.attention import (
    LONGEST_BY_PRODUCTS,
    GroupedAttention,
    VariableLengthAttention,
)
from cordwood_worker.backends.packing import MAX_SCORES, Packing, filled, most_cells
from cordwood_worker.backends.streams import CopyStream

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from cordwood_worker.backends.pool import BufferPool
    from cordwood_worker.batch import Tokens

STEP: Final = {"fp32": 16, "bf16": 32, "fp16": 32}
"""Widths of attention cells are multiples of this: the numbers in a vector register of AVX-512.

torch's softmax on the CPU takes three times as long for bf16 rows of 44 numbers as for rows of 64.
"""


@dataclass(slots=True)
class Staged:
    """A batch on the device: the features that the model's modules take, and the leases that they live in.

    The first `rows` lines of the output count, and `order` is where each belongs, None if in place. `ready` is a CUDA
    event after the copies.
    """

    features: dict[str, Any]
    rows: int
    order: NDArray[np.int64] | None = None
    ready: Any = None
    leases: ExitStack = field(default_factory=ExitStack)

    def release(self) -> None:
        """Return the buffers to the pool; more than once does no harm."""
        self.leases.close()


class Feed(Protocol):
    """One way to lay out a batch; `packs` says that it is without padding."""

    packs: bool

    def stage(self, tokens: Sequence[Tokens]) -> Staged:
        """Lay out rows; the caller must release what comes back."""
        ...

    def reserve(self, rows: int, tokens: int) -> None:
        """Have the pool allocate what a batch of at most so many rows and tokens can need."""
        ...


@dataclass(frozen=True, slots=True)
class Layout:
    """What a feed must know of the model: its padding, whether it takes type IDs, the length of a prompt that pooling
    leaves out (else 0), where its positions begin, its attention heads and hidden size, and its longest row.
    """

    pad_id: int
    pads_left: bool
    takes_type_ids: bool
    prompt_tokens: int
    position_offset: int
    heads: int
    hidden: int
    max_tokens: int


class PaddedFeed:
    """One matrix, padded to the longest row on the side that the model wants."""

    packs = False

    def __init__(self, layout: Layout, pool: BufferPool, device: str) -> None:
        self._layout = layout
        self._pool = pool
        self._device = device
        self._copies = CopyStream(device)

    def stage(self, tokens: Sequence[Tokens]) -> Staged:
        """Lay out rows as `input_ids`, `attention_mask` and, where the model takes them, `token_type_ids`."""
        lengths = [max(1, len(item.ids)) for item in tokens]
        shape = (len(tokens), max(lengths))
        staged = Staged(_features(self._layout), len(tokens))
        with _released_on_error(staged):
            arrays = _lease(self._pool, staged, self._names(), shape)
            ids, attention = arrays["input_ids"], arrays["attention_mask"]
            ids[:] = self._layout.pad_id
            attention[:] = 0
            types = arrays.get("token_type_ids")
            if types is not None:
                types[:] = 0
            for index, item in enumerate(tokens):
                length = len(item.ids)
                span = slice(shape[1] - length, None) if self._layout.pads_left else slice(length)
                ids[index, span] = item.ids
                attention[index, span] = 1
                if types is not None and item.type_ids is not None:
                    types[index, span] = item.type_ids
            _move(staged, self._device, self._copies)
        return staged

    def reserve(self, rows: int, tokens: int) -> None:
        """Two batches of each matrix: one runs while the next is laid out."""
        del rows
        _reserve(self._pool, [(tokens,)] * (2 * len(self._names())))

    def _names(self) -> tuple[str, ...]:
        return ("input_ids", "attention_mask", *(["token_type_ids"] if self._layout.takes_type_ids else []))


class PackedFeed:
    """All rows end to end, without padding, and the layout by which attention tells them apart."""

    packs = True

    def __init__(self, layout: Layout, pool: BufferPool, device: str, precision: str) -> None:
        self._layout = layout
        self._pool = pool
        self._device = device
        self._copies = CopyStream(device)
        self._on_cpu = device == "cpu"
        self._precision = precision
        self._step = STEP[precision]
        self._by_variable_length = device.startswith("cuda") and precision != "fp32"

    def stage(self, tokens: Sequence[Tokens]) -> Staged:
        """Lay out rows, sorted by length, as one row of `input_ids` with `position_ids`, and `packing` beside them.

        On a CPU tokens that belong to no row fill it up; they come out as one line more than there are rows.
        """
        packing = Packing.of([len(item.ids) for item in tokens])
        real, total = packing.tokens, filled(packing.tokens) if self._on_cpu else packing.tokens
        bounds = packing.bounds if total == real else np.append(packing.bounds, np.int32(total))
        staged = Staged(_features(self._layout), len(tokens), packing.order)
        with _released_on_error(staged):
            arrays = _lease(self._pool, staged, self._names(), (1, total))
            self._fill_in(arrays, packing, [tokens[index] for index in packing.order.tolist()])
            with self._copies.current():
                # The name by which sentence-transformers' pooling knows rows that lie end to end.
                staged.features["cu_seq_lens_q"] = self._put(bounds.astype(np.int64))
                staged.features["packing"] = self._attention(packing, total - real, staged)
            _move(staged, self._device, self._copies)
        return staged

    def reserve(self, rows: int, tokens: int) -> None:
        """Two batches of each array, and one of what attention works in."""
        import torch

        _reserve(self._pool, [(filled(tokens),)] * (2 * len(self._names())))
        if self._on_cpu:
            numbers = most_cells(tokens, rows, self._step) * self._layout.hidden
            longest = min(self._layout.max_tokens + self._step, LONGEST_BY_PRODUCTS[self._precision])
            scores = max(MAX_SCORES, self._layout.heads * longest**2)
            _reserve(self._pool, [(numbers,)] * 4 + [(scores,)], _dtype(torch, self._precision))

    def _names(self) -> tuple[str, ...]:
        types = ["token_type_ids"] if self._layout.takes_type_ids else []
        return ("input_ids", "position_ids", "seq_idx", *types)

    def _fill_in(self, arrays: dict[str, NDArray[Any]], packing: Packing, rows: Sequence[Tokens]) -> None:
        """Write the rows, and behind them padding of a row of its own."""
        real, layout = packing.tokens, self._layout
        behind = {"input_ids": layout.pad_id, "position_ids": layout.position_offset, "seq_idx": len(rows)}
        for name, array in arrays.items():
            array[0, real:] = behind.get(name, 0)
        np.concatenate([np.asarray(item.ids) for item in rows], out=arrays["input_ids"][0, :real])
        np.add(packing.positions, layout.position_offset, out=arrays["position_ids"][0, :real])
        arrays["seq_idx"][0, :real] = packing.segments
        if "token_type_ids" in arrays:
            arrays["token_type_ids"][0, :real] = _type_ids(rows, real)

    def _attention(self, packing: Packing, fill: int, staged: Staged) -> GroupedAttention | VariableLengthAttention:
        import torch

        if self._by_variable_length:
            return VariableLengthAttention(self._put(packing.bounds), int(packing.lengths[-1]))
        heads, dtype = self._layout.heads, _dtype(torch, self._precision)
        groups = packing.groups(self._step, heads)
        return GroupedAttention(
            groups=tuple(groups),
            masks=tuple(
                None if group.is_even else self._put(_mask(group.lengths, group.width), dtype) for group in groups
            ),
            gather=self._put(packing.gather_index(groups, heads)),
            scatter=self._put(np.append(packing.scatter_index(groups, heads), np.zeros(fill * heads, dtype=np.int64))),
            by_products_to=LONGEST_BY_PRODUCTS[self._precision] if self._on_cpu else 0,
            workspace=self._workspace(groups, staged, dtype) if self._on_cpu else (),
        )

    def _workspace(self, groups: Sequence[Any], staged: Staged, dtype: Any) -> tuple[Any, ...]:
        """Buffers for the queries, keys, values and outputs of all cells, and for the scores of the largest group."""
        heads = self._layout.heads
        lines = sum(group.rows * group.width for group in groups) * heads
        limit = LONGEST_BY_PRODUCTS[self._precision]
        scores = max((group.rows * group.width**2 * heads for group in groups if group.width <= limit), default=1)
        shapes = [(lines, self._layout.hidden // heads)] * 4 + [(scores,)]
        return tuple(staged.leases.enter_context(self._pool.lease(shape, dtype)).tensor for shape in shapes)

    def _put(self, array: NDArray[Any], dtype: Any = None) -> Any:
        import torch

        return torch.from_numpy(array).to(device=self._device, dtype=dtype)


def _features(layout: Layout) -> dict[str, Any]:
    features: dict[str, Any] = {"modality": "text"}
    if layout.prompt_tokens:
        features["prompt_length"] = layout.prompt_tokens
    return features


def _lease(pool: BufferPool, staged: Staged, names: Sequence[str], shape: tuple[int, ...]) -> dict[str, NDArray[Any]]:
    """Lease one int64 buffer for each name, note its tensor as a feature, and return the arrays to fill."""
    import torch

    arrays: dict[str, NDArray[Any]] = {}
    for name in names:
        lease = staged.leases.enter_context(pool.lease(shape, torch.int64))
        staged.features[name] = lease.tensor
        arrays[name] = lease.array
    return arrays


def _reserve(pool: BufferPool, shapes: Sequence[tuple[int, ...]], dtype: Any = None) -> None:
    import torch

    with ExitStack() as leases:
        for shape in shapes:
            leases.enter_context(pool.lease(shape, dtype or torch.int64))


def _move(staged: Staged, device: str, copies: CopyStream) -> None:
    """Copy what was laid out to the device, not waiting for it; the buffers stay leased until the batch is over."""
    import torch

    if device == "cpu":
        return
    with copies.current():
        for name, value in staged.features.items():
            if isinstance(value, torch.Tensor):
                staged.features[name] = value.to(device, non_blocking=True)
    staged.ready = copies.mark()


def _type_ids(rows: Sequence[Tokens], tokens: int) -> NDArray[np.int64]:
    types = np.zeros(tokens, dtype=np.int64)
    if any(item.type_ids is not None for item in rows):
        parts = [np.zeros(len(item.ids)) if item.type_ids is None else np.asarray(item.type_ids) for item in rows]
        np.concatenate(parts, out=types, casting="unsafe")
    return types


def _mask(lengths: NDArray[np.int64], width: int) -> NDArray[np.float32]:
    """What to add to the scores of a group: 0 within a row, minus infinity behind its end; (rows, 1, 1, width)."""
    behind = np.arange(width) >= lengths[:, None]
    return np.where(behind, np.float32("-inf"), np.float32(0))[:, None, None, :]


def _dtype(torch: Any, precision: str) -> Any:
    return {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]


@contextmanager
def _released_on_error(staged: Staged) -> Iterator[None]:
    """Release a batch that could not be laid out."""
    try:
        yield
    except BaseException:
        staged.release()
        raise
