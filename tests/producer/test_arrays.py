from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from cordwood.arrays import DTYPES, MAX_DIMENSIONS, from_wire, to_wire
from cordwood.codec import pack, unpack
from cordwood.errors import CodecError
from cordwood.result import Outputs, encode_outputs

brisk = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])


def through_the_wire(value: object) -> NDArray[Any]:
    """Encode and decode to the last byte, and check that nothing of it is a pickle."""
    packed = pack({"a": to_wire(value)}, max_bytes=1_000_000)
    assert not packed.startswith(pickle.PROTO)
    assert b"numpy" not in packed
    return from_wire(unpack(packed, max_bytes=1_000_000)["a"])


def same_bits(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Equal in dtype, shape and every bit, so that -0.0 is not 0.0."""
    native = other.astype(other.dtype.newbyteorder("="))
    return one.dtype == native.dtype and one.shape == native.shape and one.tobytes() == native.tobytes()


C10_VALUES: dict[str, Any] = {
    "float16 scalar": np.float16(0.1),
    "float32 scalar": np.float32(0.1),
    "float64 scalar": np.float64(0.1),
    "int64 scalar": np.int64(-(2**63)),
    "bool scalar": np.bool_(True),
    "0-d array": np.array(1.5, dtype=np.float32),
    "1-d array": np.array([1.5, -2.5], dtype=np.float16),
    "non-contiguous slice": np.arange(24, dtype=np.float32).reshape(4, 6)[::2, 1::2],
    "transposed": np.arange(6, dtype=np.float64).reshape(2, 3).T,
    "big-endian": np.array([1.0, 2.5, -3e7], dtype=">f4"),
    "big-endian slice": np.arange(10, dtype=">i2")[::3],
    "empty": np.empty((0, 384), dtype=np.float32),
    "negative zero": np.array([-0.0, 0.0], dtype=np.float32),
    "smallest subnormal of float16": np.array([6e-8], dtype=np.float16),
    "smallest subnormal of float32": np.array([1e-45], dtype=np.float32),
    "smallest subnormal of float64": np.array([5e-324], dtype=np.float64),
    "largest float16": np.array([65504.0], dtype=np.float16),
}


@pytest.mark.parametrize("name", C10_VALUES)
def test_c10_numbers_of_all_kinds_keep_dtype_shape_and_every_bit(name: str) -> None:
    """Scalars, odd layouts and byte orders, and the edges of the floating-point ranges."""
    value = np.asarray(C10_VALUES[name])
    assert value.dtype.kind != "f" or value.size == 0 or value.any() or name == "negative zero"
    assert same_bits(through_the_wire(C10_VALUES[name]), value)


@brisk
@given(
    array=st.sampled_from(DTYPES).flatmap(
        lambda name: hnp.arrays(
            np.dtype(name),
            hnp.array_shapes(min_dims=0, max_dims=MAX_DIMENSIONS, min_side=0, max_side=4),
            elements={"allow_nan": False, "allow_infinity": False} if name.startswith("float") else None,
        )
    )
)
def test_c10_every_array_of_the_allowed_dtypes_is_read_back(array: NDArray[Any]) -> None:
    """In either byte order and turned around, too."""
    assert same_bits(through_the_wire(array), array)
    assert same_bits(through_the_wire(array.T), np.ascontiguousarray(array.T).reshape(array.T.shape))
    assert same_bits(through_the_wire(array.astype(array.dtype.newbyteorder(">"))), array)


def test_c10_torch_tensors_are_taken_and_bfloat16_widens_exactly() -> None:
    """Also with a gradient, non-contiguous, or of half precision."""
    import torch

    exact = [1.0, -0.0078125, 3.3895313892515355e38, 9.183549615799121e-41]
    wide = through_the_wire(torch.tensor(exact, dtype=torch.bfloat16))
    assert (wide.dtype, wide.tolist()) == (np.dtype(np.float32), exact)
    half = through_the_wire(torch.tensor([[65504.0], [6e-8]], dtype=torch.float16).T)
    assert (half.dtype, half.shape) == (np.dtype(np.float16), (1, 2))
    assert through_the_wire(torch.ones(2, requires_grad=True)).tolist() == [1.0, 1.0]
    for refused in (torch.tensor([float("nan")], dtype=torch.bfloat16), torch.zeros(2).to_sparse()):
        with pytest.raises(CodecError):
            to_wire(refused)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ">f4"])
def test_c10_what_is_not_finite_is_refused_in_both_directions(number: float, dtype: str) -> None:
    """With an error that says so."""
    array = np.array([1.0, number], dtype=dtype)
    with pytest.raises(CodecError, match="NaN or infinity"):
        to_wire(array)
    little = array.astype(array.dtype.newbyteorder("<"))
    fields = {"dtype": little.dtype.name, "shape": [2], "data": little.tobytes()}
    with pytest.raises(CodecError, match="NaN or infinity"):
        from_wire(fields)


def test_c10_a_vector_of_384_float16_takes_less_than_1000_bytes() -> None:
    """Names, counts and all."""
    outputs = Outputs(
        task="embed",
        values=np.linspace(-1, 1, 384, dtype=np.float16).reshape(1, 384),
        tokens=(256,),
        truncated=(0,),
        model="sentence-transformers/all-MiniLM-L6-v2",
        fingerprint="0123456789abcdef",
        precision="fp16",
    )
    encoded = encode_outputs(outputs, max_bytes=1_000_000)
    assert 768 < len(encoded) < 1_000


def test_the_wire_is_little_endian() -> None:
    """Whatever the machine and the input's byte order."""
    assert to_wire(np.array([1, 2], dtype=">u1"))["data"] == b"\x01\x02"
    for order in "<>":
        wire = to_wire(np.array([1, -2], dtype=f"{order}i2"))
        assert wire == {"dtype": "int16", "shape": [2], "data": b"\x01\x00\xfe\xff"}


def test_an_array_that_was_read_cannot_be_written() -> None:
    """All readers of one result see the same."""
    array = through_the_wire([1.0, 2.0])
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 5.0


REFUSED: dict[str, object] = {
    "text": "abc",
    "texts": ["a", "b"],
    "None": None,
    "ragged": [[1.0], [1.0, 2.0]],
    "complex": np.array([1j]),
    "date": np.array(["2026-01-01"], dtype="datetime64[D]"),
    "object": object(),
    "record": np.zeros(2, dtype=[("a", "f4")]),
    "uint64": np.array([1], dtype=np.uint64),
    "large number": 10**40,
    "map": {"a": 1},
    "five dimensions": np.zeros((1,) * 5, dtype=np.float32),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_array_of_numbers_is_refused(name: str) -> None:
    """By an error of our own, which leaves the numbers out."""
    with pytest.raises(CodecError):
        to_wire(REFUSED[name])


GOOD = {"dtype": "float32", "shape": [2], "data": b"\x00" * 8}


@pytest.mark.parametrize(
    "change",
    [
        {"dtype": "object"},
        {"dtype": "<f4"},
        {"dtype": "O"},
        {"dtype": ["float32"]},
        {"dtype": None},
        {"shape": [3]},
        {"shape": [-2]},
        {"shape": [True, 2]},
        {"shape": [2.0]},
        {"shape": "2"},
        {"shape": [1, 1, 1, 1, 2]},
        {"shape": [2**31]},
        {"shape": [0, 2**31 - 1, 2**31 - 1, 2**31 - 1], "data": b""},
        {"shape": []},
        {"data": b"\x00" * 7},
        {"data": "00000000"},
        {"data": None},
        {"dtype": "bool", "data": b"\x01\x02"},
    ],
    ids=repr,
)
def test_a_wire_map_that_does_not_add_up_is_refused(change: dict[str, object]) -> None:
    """Other dtypes than the list's, shapes that do not fit the bytes, types that are not the fields'."""
    assert from_wire(GOOD).tolist() == [0.0, 0.0]
    with pytest.raises(CodecError):
        from_wire({**GOOD, **change})


@pytest.mark.parametrize("name", GOOD)
def test_a_wire_map_with_a_field_missing_is_refused(name: str) -> None:
    """All three are needed, and a map."""
    with pytest.raises(CodecError):
        from_wire({key: value for key, value in GOOD.items() if key != name})
    with pytest.raises(CodecError):
        from_wire(list(GOOD))


def test_an_empty_array_keeps_its_shape() -> None:
    """No inputs, but a dimension."""
    assert through_the_wire(np.empty((0, 384), dtype=np.float16)).shape == (0, 384)
    assert through_the_wire([]).shape == (0,)
