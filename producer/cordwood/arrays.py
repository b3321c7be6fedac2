"""Arrays on the wire: dtype, shape and raw little-endian bytes; never pickle."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from cordwood.errors import CodecError

if TYPE_CHECKING:
    from numpy.typing import NDArray


DTYPES: Final = ("float16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64", "bool")
MAX_DIMENSIONS: Final = 4


def to_wire(value: object) -> dict[str, Any]:
    """Turn numbers into a wire map of `dtype`, `shape` and `data`.

    Takes numpy arrays and scalars of any byte order and layout, Python numbers and sequences of them, and torch
    tensors on any device; bfloat16 is widened to float32, which is exact. The dtypes are those in `DTYPES`.

    Raises CodecError for other dtypes and for NaN and infinities.
    """
    array = _as_numpy(value)
    name = array.dtype.newbyteorder("=").name
    if name not in DTYPES:
        raise CodecError(f"dtype {name} is not one of {', '.join(DTYPES)}")
    if array.ndim > MAX_DIMENSIONS:
        raise CodecError(f"{array.ndim} dimensions are over the limit of {MAX_DIMENSIONS}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise CodecError("NaN or infinity in an array")
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return {"dtype": name, "shape": list(array.shape), "data": little.tobytes()}


def from_wire(fields: object) -> NDArray[Any]:
    """Return the array of a wire map, in native byte order, read-only and of the declared shape.

    Raises CodecError for an unknown dtype, a shape that does not match the bytes, NaN and infinities.
    """
    if not isinstance(fields, dict):
        raise CodecError("an array is not a map")
    name, shape, data = fields.get("dtype"), fields.get("shape"), fields.get("data")
    if name not in DTYPES or not isinstance(data, bytes) or not isinstance(shape, list):
        raise CodecError("an array needs dtype, shape and data")
    if len(shape) > MAX_DIMENSIONS or not all(type(size) is int and 0 <= size < 2**31 for size in shape):
        raise CodecError("an array's shape is not a short list of sizes")
    dtype = np.dtype(cast("str", name)).newbyteorder("<")
    if prod(shape) * dtype.itemsize != len(data) or prod(size or 1 for size in shape) >= 2**31:
        raise CodecError(f"{len(data)} bytes do not hold {name} of shape {shape}")
    array = np.frombuffer(data, dtype=dtype).reshape(shape)
    if dtype.kind == "f" and not np.isfinite(array).all():
        raise CodecError("NaN or infinity in an array")
    if dtype.kind == "b" and (array.view(np.uint8) > 1).any():
        raise CodecError("a bool that is neither 0 nor 1 in an array")
    return _read_only(array.astype(dtype.newbyteorder("="), copy=False))


def _as_numpy(value: object) -> NDArray[Any]:
    try:
        return _tensor_as_numpy(value) if hasattr(value, "detach") and hasattr(value, "cpu") else np.asarray(value)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise CodecError(f"not an array of numbers: {type(value).__name__}") from error


def _tensor_as_numpy(value: object) -> NDArray[Any]:
    """Accept a torch tensor without importing torch: by what it offers, as numpy itself does."""
    tensor: Any = cast("Any", value).detach().cpu()
    if str(tensor.dtype) == "torch.bfloat16":
        tensor = tensor.float()
    return cast("NDArray[Any]", tensor.resolve_neg().resolve_conj().numpy())


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array
