"""Listening to every command that a server carries out, those of scripts included."""

from __future__ import annotations

import re
import secrets
import socket
from collections import Counter
from threading import Thread
from types import TracebackType
from typing import Any, Final, Self

import redis

from tests.waiting import wait_until

_OUTCOME: Final = re.compile(rb'"HSET" "cw:\{[^}]+\}:job:([^"]+)" "st" "(done|failed|dead|cancelled|expired)"')


class Monitor:
    """The commands that a server on a unix socket carries out while the block lasts, one line each."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._socket = socket.socket(socket.AF_UNIX)
        self._received = bytearray()
        self._thread = Thread(target=self._receive, name="monitor", daemon=True)

    def __enter__(self) -> Self:
        """Begin to listen; commands sent from now on are heard."""
        client = redis.Redis.from_url(self._url)
        self._socket.connect(client.get_connection_kwargs()["path"])
        client.close()
        self._socket.sendall(b"MONITOR\r\n")
        self._thread.start()
        wait_until(lambda: self._received.startswith(b"+OK\r\n"), description="the server lets us listen")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop listening."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def heard(self) -> bytes:
        """Return all that was carried out until now."""
        mark = secrets.token_hex(16)
        with redis.Redis.from_url(self._url) as client:
            client.echo(mark)
        wait_until(lambda: mark.encode() in self._received[-100_000:], description="the server has told all")
        return bytes(self._received)

    def outcomes(self) -> Counter[str]:
        """Count by job ID how often an outcome was written into its record."""
        return Counter(found[1].decode() for found in _OUTCOME.finditer(self.heard()))

    def _receive(self) -> None:
        while data := self._read():
            self._received += data

    def _read(self) -> Any:
        try:
            return self._socket.recv(1 << 20)
        except OSError:
            return b""
