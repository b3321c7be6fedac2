"""The folder of an embedded server: who owns it, and where its socket is."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

MAX_SOCKET_PATH_BYTES: Final = 100
"""The kernel takes 107 bytes on Linux and 103 on macOS."""
SOCKET_NAME: Final = "server.sock"
SOCKET_NOTE: Final = "server.sock.path"
LOCK_NAME: Final = "server.lock"
LOG_NAME: Final = "server.log"

_CONNECT_TIMEOUT_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that has started the server of a folder."""

    pid: int
    program: str

    @property
    def alive(self) -> bool:
        """Whether there is a process of this number; in another container there may be and not be seen."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True

    def __str__(self) -> str:
        return f"process {self.pid} ({self.program})"


class DirectoryLock:
    """The right to run a server on a folder.

    It is an flock, so nothing is left to clear away after a crash. The server's process inherits it through
    `descriptor`: as long as either lives, nobody else can open the same files.
    """

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / LOCK_NAME
        self._descriptor: int | None = None

    @property
    def descriptor(self) -> int:
        """The open file that holds the lock."""
        if self._descriptor is None:
            raise RuntimeError("the lock is not held")
        return self._descriptor

    @property
    def held(self) -> bool:
        """Whether this object has taken the lock."""
        return self._descriptor is not None

    def take(self) -> bool:
        """Take the lock and note who has it; return False, and wait for nothing, if somebody else has it."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except BaseException:
            os.close(descriptor)
            raise
        # Arguments may hold passwords, so only the program's name is noted.
        note = {"pid": os.getpid(), "program": Path(sys.argv[0]).name if sys.argv else ""}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(note).encode(), 0)
        self._descriptor = descriptor
        return True

    def owner(self) -> Owner | None:
        """Return who noted itself last, or None if that cannot be read."""
        try:
            note: Any = json.loads(self._path.read_bytes())
            return Owner(int(note["pid"]), str(note["program"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def release(self) -> None:
        """Give the lock up; it stays taken while a server that inherited it lives."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def place_socket(data_dir: Path) -> Path:
    """Return where the server of this folder shall listen, with nothing there. Only the owner of the lock may call it.

    That is the folder itself, or, if the path would be too long for a socket, a new temporary folder that a note in
    the data folder names.
    """
    clear_socket(data_dir)
    path = data_dir / SOCKET_NAME
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
        return path
    path = Path(tempfile.mkdtemp(prefix="cordwood-", dir=_short_folder())) / SOCKET_NAME
    (data_dir / SOCKET_NOTE).write_bytes(os.fsencode(path))
    return path


def clear_socket(data_dir: Path) -> None:
    """Remove the socket of a server that is gone, the temporary folder it may have had, and the note of it."""
    noted = noted_socket(data_dir)
    if noted is not None:
        noted.unlink(missing_ok=True)
        with suppress(OSError):
            noted.parent.rmdir()
    (data_dir / SOCKET_NOTE).unlink(missing_ok=True)
    (data_dir / SOCKET_NAME).unlink(missing_ok=True)


def noted_socket(data_dir: Path) -> Path | None:
    """Return the socket in a temporary folder that the data folder's note names, if there is a note."""
    try:
        path = Path(os.fsdecode((data_dir / SOCKET_NOTE).read_bytes()))
    except OSError:
        return None
    # What is named here gets removed: take nothing but what `place_socket` makes.
    made_here = path.is_absolute() and path.name == SOCKET_NAME and path.parent.name.startswith("cordwood-")
    return path if made_here else None


def find_socket(data_dir: Path) -> Path | None:
    """Return the socket of the embedded server that runs on this folder, or None if none does. Changes nothing."""
    folder = data_dir.absolute()
    for path in (noted_socket(folder), folder / SOCKET_NAME):
        if path is not None and _accepts(path):
            return path
    return None


def answers_ping(path: Path) -> bool:
    """Whether a server on this socket is ready for commands: not while it is still loading its data."""
    try:
        with _connected(path) as link:
            link.sendall(b"PING\r\n")
            return link.recv(64).startswith((b"+PONG", b"-NOAUTH"))
    except OSError:
        return False


def _accepts(path: Path) -> bool:
    try:
        with _connected(path):
            return True
    except OSError:
        return False


@contextmanager
def _connected(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(_CONNECT_TIMEOUT_S)
        link.connect(os.fspath(path))
        yield link


def _short_folder() -> str:
    """A long TMPDIR would only move the trouble."""
    folder = tempfile.gettempdir()
    return folder if len(os.fsencode(folder)) <= MAX_SOCKET_PATH_BYTES // 2 else "/tmp"  # noqa: S108 - mkdtemp is safe in it
