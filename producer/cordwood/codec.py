"""msgpack for everything that crosses the wire: plain types only, versioned, with hard limits in both directions."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, cast

import msgpack

from cordwood.errors import CodecError, MessageTooLarge

VERSION: Final = 1
MAX_VALUES: Final = 100_000
"""Values of all arrays and maps of one message together. An empty map is one byte on the wire and 64 in memory."""
MAX_ITEMS: Final = 5_000
"""Entries of one array or map. msgpack makes room for an array before it has read it, and nests 1,024 of them."""
MAX_DEPTH: Final = 16
_TEXT: Final = frozenset({str})
_STRINGS: Final = frozenset({str, bytes})
_CONTAINERS: Final = frozenset({list, dict})
_PLAIN: Final = _STRINGS | _CONTAINERS | {type(None), bool, int, float}


def pack(fields: dict[str, Any], *, max_bytes: int) -> bytes:
    """Encode a map of plain values (None, bool, int, float, str, bytes, list, dict) with the version added as `v`.

    Raises MessageTooLarge over `max_bytes`, without encoding what is certainly too large; CodecError for any other
    type, subclasses too, for text with lone surrogates and for what is too deep or has too many values to be decoded.
    """
    if "v" in fields:
        raise CodecError("the field v is the version's")
    size = _plain_size(fields)
    if size > max_bytes:
        raise MessageTooLarge(f"at least {size} bytes are over the limit of {max_bytes}", size=size)
    try:
        packed = cast("bytes", msgpack.packb({"v": VERSION, **fields}, use_bin_type=True, strict_types=True))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise CodecError(f"cannot be encoded: {_brief(error)}") from error
    if len(packed) > max_bytes:
        raise MessageTooLarge(f"{len(packed)} bytes are over the limit of {max_bytes}", size=len(packed))
    return packed


def unpack(data: bytes, *, max_bytes: int) -> dict[str, Any]:
    """Decode what `pack` made, without the version.

    Raises MessageTooLarge over `max_bytes`; CodecError for anything malformed, over another limit (depth, counts), of
    another version, or with extension types.
    """
    if len(data) > max_bytes:
        raise MessageTooLarge(f"{len(data)} bytes are over the limit of {max_bytes}", size=len(data))
    count = _ValueCount()
    try:
        fields = msgpack.unpackb(
            data,
            raw=False,
            strict_map_key=True,
            max_str_len=max_bytes,
            max_bin_len=max_bytes,
            max_array_len=MAX_ITEMS,
            max_map_len=MAX_ITEMS,
            max_ext_len=0,
            ext_hook=_refuse_extension,
            list_hook=count.list_seen,
            object_hook=count.map_seen,
        )
    except CodecError:
        raise
    except Exception as error:
        raise CodecError(f"cannot be decoded: {_brief(error)}") from error
    if not isinstance(fields, dict):
        raise CodecError("cannot be decoded: not a map")
    version = fields.pop("v", None)
    if type(version) is not int or version != VERSION:
        raise CodecError(f"not of version {VERSION}")
    _check_depth(fields)
    return fields


def _plain_size(fields: dict[str, Any]) -> int:
    """Return a lower bound of the encoded size in bytes, without encoding anything.

    Raises CodecError for what is not plain or over a limit other than the size. It walks by levels, not by
    recursion: what is too deep must not fail in another way first, and a value that holds itself must not hang it.
    """
    size = 1
    count = _ValueCount()
    level: list[Any] = [fields]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for container in level:
            items = container
            if type(container) is dict:
                count.map_seen(container)
                size += sum(map(len, container))
                items = container.values()
            else:
                count.list_seen(container)
            size += len(container) + _leaf_bytes(items, below)
        if not below:
            return size
        level = below
    raise CodecError(f"nested deeper than {MAX_DEPTH}")


def _leaf_bytes(items: Collection[Any], below: list[Any]) -> int:
    """Count one byte for a character, which has at least as many; add arrays and maps to `below` instead."""
    kinds = set(map(type, items))
    if kinds == _TEXT:
        return sum(map(len, items))
    if not kinds <= _PLAIN:
        names = ", ".join(sorted(kind.__name__ for kind in kinds - _PLAIN))
        raise CodecError(f"cannot be encoded: {names} is not a plain type")
    if not kinds.isdisjoint(_CONTAINERS):
        below.extend(item for item in items if type(item) in _CONTAINERS)
    return sum(len(item) for item in items if type(item) in _STRINGS)


def _check_depth(fields: dict[str, Any]) -> None:
    level: list[Any] = [fields]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for container in level:
            items = container.values() if type(container) is dict else container
            if not _CONTAINERS.isdisjoint(map(type, items)):
                below.extend(item for item in items if type(item) in _CONTAINERS)
        if not below:
            return
        level = below
    raise CodecError(f"nested deeper than {MAX_DEPTH}")


class _ValueCount:
    """Stops a message with too many values while it is being decoded, and looks at the keys of its maps."""

    def __init__(self) -> None:
        self._seen = 0

    def list_seen(self, value: list[Any]) -> list[Any]:
        """Count an array."""
        self._add(len(value))
        return value

    def map_seen(self, value: dict[Any, Any]) -> dict[Any, Any]:
        """Count a map; its keys must be text."""
        self._add(len(value))
        if not all(type(key) is str for key in value):
            raise CodecError("a key of a map is not text")
        return value

    def _add(self, values: int) -> None:
        self._seen += 1 + values
        if self._seen > MAX_VALUES:
            raise CodecError(f"more than {MAX_VALUES} values")
        if values > MAX_ITEMS:
            raise CodecError(f"{values} entries of one array or map are over the limit of {MAX_ITEMS}")


def _refuse_extension(code: int, data: bytes) -> Any:
    raise CodecError(f"extension type {code} with {len(data)} bytes is not allowed")


def _brief(error: Exception) -> str:
    """Name an error without its text, which may quote the message's contents."""
    return type(error).__name__
