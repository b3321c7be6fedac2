"""Vectors as the caller wants them: shorter, of unit length, in another number format. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cordwood.options import BITS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cordwood.options import EmbedOptions

SHORTEST: Final = 1e-12
"""A shorter vector is divided by this instead of its length, as torch's `normalize` does it."""


def as_asked(values: NDArray[np.float32], options: EmbedOptions, *, normalized: bool) -> NDArray[Any]:
    """Turn a model's vectors, shape (rows, dim), into what the options ask for, shape (rows, `options.width(dim)`).

    `normalized` says that they are unit vectors: what is cut off them is made up for.
    """
    if options.dim is not None and options.dim < values.shape[1]:
        values = values[:, : options.dim]
        if normalized or options.normalize:
            values = _unit(values)
    elif options.normalize and not normalized:
        values = _unit(values)
    if options.output in BITS:
        # As `quantize_embeddings` of sentence-transformers has it.
        bits = np.packbits(values > 0, axis=1)
        return bits if options.output == "ubinary" else (bits.astype(np.int16) - 128).astype(np.int8)
    return values.astype(options.output, copy=False)


def _unit(values: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.sqrt(np.einsum("ij,ij->i", values, values, dtype=np.float32))
    unit: NDArray[np.float32] = values / np.maximum(lengths, np.float32(SHORTEST))[:, None]
    return unit
