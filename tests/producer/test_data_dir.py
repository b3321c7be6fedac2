import os
import socket
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from cordwood.data_dir import (
    MAX_SOCKET_PATH_BYTES,
    SOCKET_NAME,
    SOCKET_NOTE,
    DirectoryLock,
    Owner,
    answers_ping,
    clear_socket,
    find_socket,
    noted_socket,
    place_socket,
)


@pytest.fixture
def long_dir(tmp_path: Path) -> Path:
    """A folder too deep for a socket, though not for anything else."""
    folder = tmp_path / ("d" * MAX_SOCKET_PATH_BYTES)
    folder.mkdir()
    return folder


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A socket that is not bound yet."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as unbound:
        yield unbound


def test_only_one_holds_the_lock_and_the_others_learn_who(tmp_path: Path) -> None:
    """The second is told at once, and has it as soon as the first lets go."""
    first, second = DirectoryLock(tmp_path), DirectoryLock(tmp_path)
    assert first.take()
    assert not second.take()
    owner = second.owner()
    assert owner is not None
    assert (owner.pid, owner.alive) == (os.getpid(), True)
    first.release()
    assert second.take()
    assert (first.held, second.held) == (False, True)
    second.release()


def test_a_lock_that_was_inherited_stays_taken(tmp_path: Path) -> None:
    """A server outlives its owner by a moment, and nobody may open its files meanwhile."""
    first, second = DirectoryLock(tmp_path), DirectoryLock(tmp_path)
    assert first.take()
    inherited = os.dup(first.descriptor)
    first.release()
    assert not second.take()
    os.close(inherited)
    assert second.take()
    second.release()


def test_a_process_that_is_gone_is_not_alive() -> None:
    """Process numbers end well below this one."""
    assert not Owner(2**22 + 1, "cordwood").alive


@pytest.mark.parametrize("note", [b"", b"{", b"[]", b'{"pid": "x", "program": 1}', b"\xff"])
def test_an_unreadable_note_of_the_owner_is_nobody(tmp_path: Path, note: bytes) -> None:
    """It may have been cut short by a full disk."""
    (tmp_path / "server.lock").write_bytes(note)
    assert DirectoryLock(tmp_path).owner() is None


def test_a_socket_lies_in_its_folder_if_its_path_is_short_enough(tmp_path: Path) -> None:
    """No note is needed then, and one that is left over goes."""
    (tmp_path / SOCKET_NOTE).write_text("/tmp/cordwood-gone/server.sock")
    assert place_socket(tmp_path) == tmp_path / SOCKET_NAME
    assert not (tmp_path / SOCKET_NOTE).exists()


def test_a_long_path_moves_the_socket_and_leaves_a_note(long_dir: Path, listener: socket.socket) -> None:
    """Who knows the folder finds the socket, and clearing it leaves nothing behind."""
    path = place_socket(long_dir)
    assert len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert find_socket(long_dir) is None
    listener.bind(str(path))
    listener.listen()
    assert find_socket(long_dir) == path
    clear_socket(long_dir)
    assert (path.parent.exists(), list(long_dir.iterdir())) == (False, [])


@pytest.mark.parametrize("note", ["/etc/passwd", "cordwood-x/server.sock", "/home/someone/server.sock", ""])
def test_a_note_that_names_something_else_is_not_followed(tmp_path: Path, note: str) -> None:
    """What it names would be removed."""
    (tmp_path / SOCKET_NOTE).write_text(note)
    assert noted_socket(tmp_path) is None


def test_a_socket_that_nobody_listens_on_is_not_found(tmp_path: Path, listener: socket.socket) -> None:
    """A server that was killed leaves its socket file; looking at it changes nothing."""
    assert find_socket(tmp_path / "absent") is None
    listener.bind(str(tmp_path / SOCKET_NAME))
    assert find_socket(tmp_path) is None
    assert list(tmp_path.iterdir()) == [tmp_path / SOCKET_NAME]
    listener.listen()
    assert find_socket(tmp_path) == tmp_path / SOCKET_NAME


@pytest.mark.parametrize(
    ("reply", "ready"), [(b"+PONG\r\n", True), (b"-NOAUTH x\r\n", True), (b"-LOADING x\r\n", False), (b"", False)]
)
def test_a_server_is_ready_when_it_answers_and_not_while_it_loads(
    tmp_path: Path, listener: socket.socket, reply: bytes, ready: bool
) -> None:
    """One that wants a password first is ready too."""
    path = tmp_path / SOCKET_NAME
    listener.bind(str(path))
    listener.listen()
    answered: list[bool] = []
    asking = Thread(target=lambda: answered.append(answers_ping(path)))
    asking.start()
    link, _ = listener.accept()
    with link:
        assert link.recv(64) == b"PING\r\n"
        link.sendall(reply)
    asking.join()
    assert answered == [ready]
