"""What a monitored server was sent, taken apart: each command with its words, each script with what it issued."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

import redis
from redis.exceptions import ResponseError

_LINE: Final = re.compile(rb'^\+\S+ \[\d+ (?P<source>\S+)\] (?P<command>".*)$', re.DOTALL)
_ARGUMENT: Final = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPE: Final = re.compile(rb"\\(x[0-9a-f]{2}|.)", re.DOTALL)
_PLAIN_ESCAPES: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b"}


@dataclass(frozen=True, slots=True)
class SeenCommand:
    """A command from outside, and the commands that it issued, if it is a script."""

    words: tuple[bytes, ...]
    inner: list[tuple[bytes, ...]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The command's name."""
        return self.words[0].decode().upper()


def seen_commands(heard: bytes) -> list[SeenCommand]:
    """Read what MONITOR has told."""
    seen: list[SeenCommand] = []
    for line in heard.split(b"\r\n"):
        match = _LINE.match(line)
        if match is None:
            continue
        words = tuple(_unescaped(word) for word in _ARGUMENT.findall(match["command"]))
        if match["source"] == b"lua":
            seen[-1].inner.append(words)
        else:
            seen.append(SeenCommand(words))
    return seen


def keys_of(server: redis.Redis, words: tuple[bytes, ...]) -> list[str]:
    """Which of a command's words are keys, by the server's own judgement."""
    try:
        keys: Any = server.execute_command("COMMAND GETKEYS", *words)
    except ResponseError as error:
        if "no key arguments" not in str(error):
            raise
        return []
    return [str(key) for key in keys]


def _unescaped(word: bytes) -> bytes:
    def plain(match: re.Match[bytes]) -> bytes:
        code = match[1]
        return bytes([int(code[1:], 16)]) if len(code) == 3 else _PLAIN_ESCAPES.get(code, code)

    return _ESCAPE.sub(plain, word)
