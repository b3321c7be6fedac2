from __future__ import annotations

import struct
import tracemalloc
from contextlib import suppress
from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cordwood.codec import MAX_DEPTH, MAX_ITEMS, MAX_VALUES, VERSION, pack, unpack
from cordwood.errors import CodecError, MessageTooLarge

LIMIT = 1_048_576
ROOMY = 64 * LIMIT
brisk = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.binary(max_size=50),
)
keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(keys, inner, max_size=5)),
    max_leaves=8,
)
messages = st.dictionaries(keys.filter(lambda key: key != "v"), values, max_size=5)


def raw(value: object) -> bytes:
    """Encode anything, as somebody else would."""
    packed: bytes | None = msgpack.packb(value, use_bin_type=True)
    assert packed is not None
    return packed


def nested(depth: int) -> dict[str, Any]:
    """A message of so many containers inside each other."""
    value: Any = []
    for _ in range(depth - 2):
        value = [value]
    return {"x": value}


@brisk
@given(message=messages)
def test_what_is_packed_is_read_back(message: dict[str, Any]) -> None:
    """Values, types and order survive."""
    packed = pack(message, max_bytes=ROOMY)
    assert unpack(packed, max_bytes=len(packed)) == message
    assert isinstance(packed, bytes)


@brisk
@given(data=st.binary(max_size=300))
@example(data=b"")
@example(data=b"\xc1")
@example(data=b"\x81\xa1v")
@example(data=raw({"v": 1}) + b"\x00")
def test_garbage_raises_codec_error_and_nothing_else(data: bytes) -> None:
    """Whatever the bytes are."""
    with suppress(CodecError):
        assert isinstance(unpack(data, max_bytes=LIMIT), dict)


@brisk
@given(message=messages, at=st.integers(0, 10_000), byte=st.integers(0, 255), cut=st.integers(0, 20))
def test_damaged_messages_raise_codec_error_and_nothing_else(
    message: dict[str, Any], at: int, byte: int, cut: int
) -> None:
    """A flipped byte or a lost tail of a good message is either refused or another good message."""
    packed = bytearray(pack(message, max_bytes=ROOMY))
    packed[at % len(packed)] = byte
    with suppress(CodecError):
        assert isinstance(unpack(bytes(packed[: len(packed) - cut]), max_bytes=ROOMY), dict)


@pytest.mark.parametrize("version", [None, True, 1.0, 0, 2, "1", [1], {"v": 1}, 2**63])
def test_other_versions_are_refused(version: object) -> None:
    """A message must say exactly that it is of this version."""
    assert VERSION == 1
    with pytest.raises(CodecError, match="not of version 1"):
        unpack(raw({"v": version, "i": []}), max_bytes=LIMIT)


def test_a_message_without_a_version_is_refused() -> None:
    """It may be of any time."""
    with pytest.raises(CodecError, match="not of version 1"):
        unpack(raw({"i": []}), max_bytes=LIMIT)


@pytest.mark.parametrize("value", [[], [1], "text", 7, None, b"bytes"])
def test_only_a_map_is_a_message(value: object) -> None:
    """Everything else is refused."""
    with pytest.raises(CodecError, match="not a map"):
        unpack(raw(value), max_bytes=LIMIT)


def test_the_version_field_is_taken() -> None:
    """A caller cannot send another version by accident."""
    with pytest.raises(CodecError, match="the field v"):
        pack({"v": 2}, max_bytes=LIMIT)


NOT_PLAIN: dict[str, object] = {
    "extension": msgpack.ExtType(5, b"abc"),
    "empty extension": msgpack.ExtType(5, b""),
    "timestamp": msgpack.Timestamp(1, 2),
    "tuple": (1, 2),
    "number as key": {1: 2},
    "bytes as key": {b"key": 1},
    "set": {"a", "b"},
    "object": object(),
    "large number": 2**64,
    "lone surrogate": "half \ud83d",
    "lone surrogate as key": {"half \ud83d": 1},
    "bytearray": bytearray(b"x"),
    "subclass": type("Text", (str,), {})("x"),
}


@pytest.mark.parametrize("name", NOT_PLAIN)
def test_only_plain_values_are_packed(name: str) -> None:
    """Extension types, tuples, subclasses, other keys than text and lone surrogates are refused on the way out."""
    with pytest.raises(CodecError):
        pack({"x": NOT_PLAIN[name]}, max_bytes=LIMIT)
    with pytest.raises(CodecError):
        pack({"x": [{"y": NOT_PLAIN[name]}]}, max_bytes=LIMIT)


@pytest.mark.parametrize("code", [-128, -1, 0, 5, 127])
@pytest.mark.parametrize("size", [0, 1, 4, 8, 12, 16, 300])
def test_extension_types_are_refused_on_the_way_in(code: int, size: int) -> None:
    """All codes and sizes, the timestamp's too."""
    header = struct.pack(">BIb", 0xC9, size, code)
    with pytest.raises(CodecError):
        unpack(b"\x82\xa1v\x01\xa1x" + header + b"\x00" * size, max_bytes=LIMIT)


@pytest.mark.parametrize("data", [b"\x82\xa1v\x01\xa1x\xa3\xed\xa0\xbd", b"\x82\xa1v\x01\xa1x\xa1\xff"])
def test_text_that_is_not_utf_8_is_refused(data: bytes) -> None:
    """An encoded surrogate and a stray byte."""
    with pytest.raises(CodecError):
        unpack(data, max_bytes=LIMIT)


@pytest.mark.parametrize("value", [{1: 2}, {b"a": 1}, {None: 1}, {"ok": [{2.5: 1}]}])
def test_only_text_is_a_key(value: object) -> None:
    """A map with other keys is refused on the way in, too."""
    with pytest.raises(CodecError):
        unpack(raw({"v": 1, "x": value}), max_bytes=LIMIT)


def test_sizes_up_to_the_limit_pass_and_one_byte_more_is_refused() -> None:
    """In both directions, and the error says how much there is."""
    message = {"x": "é" * 100}
    packed = pack(message, max_bytes=ROOMY)
    assert pack(message, max_bytes=len(packed)) == packed
    assert unpack(packed, max_bytes=len(packed)) == message
    with pytest.raises(MessageTooLarge) as caught:
        pack(message, max_bytes=len(packed) - 1)
    assert caught.value.size == len(packed)
    with pytest.raises(MessageTooLarge) as caught:
        unpack(packed, max_bytes=len(packed) - 1)
    assert caught.value.size == len(packed)


def test_depth_up_to_the_limit_passes_and_one_more_is_refused() -> None:
    """In both directions."""
    deepest = nested(MAX_DEPTH)
    assert unpack(pack(deepest, max_bytes=LIMIT), max_bytes=LIMIT) == deepest
    with pytest.raises(CodecError, match="deeper"):
        pack(nested(MAX_DEPTH + 1), max_bytes=LIMIT)
    with pytest.raises(CodecError, match="deeper"):
        unpack(raw({"v": 1, **nested(MAX_DEPTH + 1)}), max_bytes=LIMIT)


def test_entries_up_to_the_limit_pass_and_one_more_is_refused() -> None:
    """Of one array and of one map, in both directions."""
    for value in ([0] * MAX_ITEMS, {str(number): 0 for number in range(MAX_ITEMS)}):
        packed = pack({"x": value}, max_bytes=LIMIT)
        assert unpack(packed, max_bytes=LIMIT) == {"x": value}
    for value in ([0] * (MAX_ITEMS + 1), {str(number): 0 for number in range(MAX_ITEMS + 1)}):
        with pytest.raises(CodecError):
            pack({"x": value}, max_bytes=LIMIT)
        with pytest.raises(CodecError):
            unpack(raw({"v": 1, "x": value}), max_bytes=LIMIT)


def test_values_up_to_the_limit_pass_and_more_are_refused() -> None:
    """Of all arrays and maps together, each of which counts as one value more, in both directions."""
    row = [0] * 4_999
    full = {"x": [row] * (MAX_VALUES // 5_000 - 1)}
    assert unpack(pack(full, max_bytes=LIMIT), max_bytes=LIMIT) == full
    over = {"x": [row] * (MAX_VALUES // 5_000)}
    with pytest.raises(CodecError, match="values"):
        pack(over, max_bytes=LIMIT)
    with pytest.raises(CodecError, match="values"):
        unpack(raw({"v": 1, **over}), max_bytes=LIMIT)


def test_a_value_that_holds_itself_is_refused() -> None:
    """It neither hangs nor recurses."""
    loop: list[Any] = [1]
    loop.append(loop)
    with pytest.raises(CodecError):
        pack({"x": loop}, max_bytes=LIMIT)


def test_what_is_too_large_is_refused_without_encoding_it() -> None:
    """A value of 50 MB costs next to nothing."""
    text = "a" * 50_000_000
    tracemalloc.start()
    try:
        with pytest.raises(MessageTooLarge):
            pack({"m": {"x": [text]}}, max_bytes=LIMIT)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


FIVE_MB = 5_000_000
ARRAY_OF_ALL = b"\xdd\x7f\xff\xff\xff"
FULL_ARRAY = b"\xdc" + struct.pack(">H", MAX_ITEMS)
FULL_MAP = b"\xde" + struct.pack(">H", MAX_ITEMS)


BOMBS = {
    "empty maps": b"\xdd" + struct.pack(">I", FIVE_MB) + b"\x80" * FIVE_MB,
    "empty maps in rows": FULL_ARRAY + (FULL_ARRAY + b"\x80" * MAX_ITEMS) * (FIVE_MB // MAX_ITEMS),
    "empty arrays in rows": FULL_ARRAY + (FULL_ARRAY + b"\x90" * MAX_ITEMS) * (FIVE_MB // MAX_ITEMS),
    "short texts in rows": FULL_ARRAY + (FULL_ARRAY + b"\xa2ab" * MAX_ITEMS) * (FIVE_MB // MAX_ITEMS // 3),
    "wide and deep": FULL_ARRAY * (FIVE_MB // 3),
    "huge arrays announced": ARRAY_OF_ALL * (FIVE_MB // 5),
    "maps as keys": FULL_MAP * (FIVE_MB // 3),
    "deep": b"\x91" * FIVE_MB,
    "deep and whole": b"\x91" * 100_000 + b"\xc0",
    "deep maps": b"\x81\xa1a" * (FIVE_MB // 3),
    "a long text announced": b"\xdb\x7f\xff\xff\xff" + b"a" * 1000,
    "long bytes announced": b"\xc6\x7f\xff\xff\xff" + b"a" * 1000,
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_with_little_memory(name: str) -> None:
    """5 MB of containers would take 370 MB to decode: it is refused within 50 MB."""
    data = b"\x82\xa1v\x01\xa1x" + BOMBS[name]
    tracemalloc.start()
    try:
        with pytest.raises(CodecError):
            unpack(data, max_bytes=2 * FIVE_MB)
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()


def test_an_errors_text_never_quotes_the_message() -> None:
    """Contents of a job must not come into logs this way."""
    for data in (raw({"v": "secret", "x": 1}), raw({"v": 1, "x": msgpack.ExtType(3, b"secret")}), b"\xa6secret"):
        with pytest.raises(CodecError) as caught:
            unpack(data, max_bytes=LIMIT)
        assert "secret" not in str(caught.value)
