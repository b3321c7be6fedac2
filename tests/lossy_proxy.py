"""A way to the server on which replies get lost: the call is carried out, and the caller never hears of it."""

from __future__ import annotations

import socket
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from cordwood.server_url import socket_url

_SIZE: Final = 1 << 16


class LossyProxy:
    """Listens on a unix socket and passes everything on, until it is told to lose replies."""

    def __init__(self, server: Path) -> None:
        self.lost = 0
        """How many replies were lost so far."""
        self._server = server
        self._to_lose = 0
        self._lock = threading.Lock()
        self._folder = tempfile.TemporaryDirectory(prefix="cwt-")
        self._path = Path(self._folder.name) / "proxy.sock"
        self._listener = socket.socket(socket.AF_UNIX)
        self._open: list[socket.socket] = [self._listener]
        self._threads = [threading.Thread(target=self._accept, name="proxy")]

    @property
    def url(self) -> str:
        """The URL for clients."""
        return socket_url(self._path)

    def lose(self, replies: int) -> None:
        """Lose the replies to the next calls of scripts, each by closing its connection."""
        with self._lock:
            self._to_lose = replies

    def __enter__(self) -> Self:
        """Begin to listen."""
        self._listener.bind(str(self._path))
        self._listener.listen()
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close everything."""
        for link in list(self._open):
            _shut(link)
        for thread in list(self._threads):
            thread.join()
        for link in self._open:
            link.close()
        self._folder.cleanup()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(str(self._server))
            self._open += [client, server]
            losing = threading.Event()
            for target, args in ((self._ask, (client, server, losing)), (self._answer, (server, client, losing))):
                thread = threading.Thread(target=target, args=args, name="proxy-link")
                self._threads.append(thread)
                thread.start()

    def _ask(self, client: socket.socket, server: socket.socket, losing: threading.Event) -> None:
        while data := _received(client):
            with self._lock:
                if self._to_lose and b"EVAL" in data:
                    self._to_lose -= 1
                    losing.set()
            server.sendall(data)
        _shut(server)

    def _answer(self, server: socket.socket, client: socket.socket, losing: threading.Event) -> None:
        while data := _received(server):
            if losing.is_set():
                self.lost += 1
                break
            client.sendall(data)
        _shut(client)


def _received(link: socket.socket) -> bytes:
    try:
        return link.recv(_SIZE)
    except OSError:
        return b""


def _shut(link: socket.socket) -> None:
    try:
        link.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
