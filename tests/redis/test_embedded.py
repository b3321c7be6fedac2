import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

from cordwood.embedded import DataDirInUse, EmbeddedServer, find_server_program, find_socket, resolve_url
from cordwood.errors import ServerUnavailable
from cordwood.settings import Settings
from tests.waiting import wait_until

OWNER = """
import sys
from pathlib import Path
from cordwood.embedded import EmbeddedServer
server = EmbeddedServer(Path(sys.argv[1]))
server.start()
print(server.pid, flush=True)
sys.stdin.read()
"""

Connect = Callable[[EmbeddedServer], redis.Redis]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a path short enough for a socket."""
    path = Path(tempfile.mkdtemp(prefix="cwt-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Connect to servers, and close the clients at the end."""
    clients: list[redis.Redis] = []

    def connected(server: EmbeddedServer) -> redis.Redis:
        clients.append(redis.Redis.from_url(server.url))
        return clients[-1]

    yield connected
    for client in clients:
        client.close()


def gone(pid: int) -> bool:
    """Whether no process has this number any more, or one that only waits for its parent to ask for its exit code."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_started_server_answers_only_on_its_socket_with_the_settings_it_needs(folder: Path, connect: Connect) -> None:
    """No TCP port, nobody else's access, nothing evicted, an append-only file, small records."""
    with EmbeddedServer(folder / "new" / "data") as server:
        config = connect(server).config_get()
        assert server.url == f"unix://{folder}/new/data/server.sock"
        assert server.socket.stat().st_mode & 0o777 == 0o700
        assert server.data_dir.stat().st_mode & 0o777 == 0o700
        wanted = {
            "port": "0",
            "maxmemory-policy": "noeviction",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "hash-max-listpack-value": "4096",
        }
        assert {key: config[key] for key in wanted} == wanted


def test_a_stopped_server_leaves_its_data_and_no_process(folder: Path, connect: Connect) -> None:
    """The next one on the folder has what the last one had; stopping twice is harmless."""
    server = EmbeddedServer(folder)
    server.start()
    pid = server.pid
    assert pid is not None
    connect(server).set("kept", "yes")
    server.stop()
    server.stop()
    assert (gone(pid), server.pid, server.running, find_socket(folder)) == (True, None, False, None)
    with EmbeddedServer(folder) as again:
        assert connect(again).get("kept") == b"yes"


def test_without_durability_nothing_is_written(folder: Path, connect: Connect) -> None:
    """For tests: fast, and empty at each start."""
    with EmbeddedServer(folder, durable=False) as server:
        connect(server).set("kept", "no")
    assert not (folder / "appendonly").exists()


def test_further_arguments_win(folder: Path, connect: Connect) -> None:
    """Tests fill a small server, or make it a cluster node."""
    with EmbeddedServer(folder, extra=("--maxmemory", "8mb", "--appendonly", "no")) as server:
        config = connect(server).config_get("maxmemory", "appendonly")
        assert config == {"maxmemory": str(8 * 1024 * 1024), "appendonly": "no"}


def test_a_second_server_on_a_folder_is_refused_and_the_owner_named(folder: Path, connect: Connect) -> None:
    """Two servers on the same files would destroy them. The first does not notice."""
    with EmbeddedServer(folder) as server:
        second = EmbeddedServer(folder)
        with pytest.raises(DataDirInUse, match=rf"{folder}, started by process {os.getpid()} "):
            second.start()
        second.stop()
        with pytest.raises(DataDirInUse):
            server.start()
        assert connect(server).ping()


def test_many_servers_start_at_once(folder: Path) -> None:
    """There are no ports to race for."""
    servers = [EmbeddedServer(folder / str(number), durable=False) for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        urls = list(pool.map(EmbeddedServer.start, servers))
        list(pool.map(EmbeddedServer.stop, servers))
    assert len(set(urls)) == 8


def test_a_server_that_does_not_come_up_says_why_and_leaves_the_folder_free(folder: Path) -> None:
    """The end of its log stands in the error."""
    with pytest.raises(ServerUnavailable, match="exit code 1") as caught:
        EmbeddedServer(folder, extra=("--no-such-setting", "1")).start()
    assert "no-such-setting" in str(caught.value)
    with EmbeddedServer(folder):
        pass


def test_a_program_that_cannot_be_run_is_named(folder: Path) -> None:
    """So is a folder that cannot be written."""
    with pytest.raises(ServerUnavailable, match="no/such/program"):
        EmbeddedServer(folder, program=Path("/no/such/program")).start()
    (folder / "file").write_text("not a folder")
    with pytest.raises(ServerUnavailable, match="cannot keep a server in"):
        EmbeddedServer(folder / "file").start()


def test_a_server_that_is_never_ready_is_given_up(folder: Path) -> None:
    """The time is bounded, and the process does not stay."""
    with pytest.raises(ServerUnavailable, match=r"not ready after 0\.2 s"):
        EmbeddedServer(folder, extra=("--unixsocket", f"{folder}/elsewhere.sock"), ready_timeout_s=0.2).start()
    with EmbeddedServer(folder):
        pass


def test_a_stale_socket_is_replaced(folder: Path, connect: Connect) -> None:
    """A machine that lost power leaves a socket file that leads nowhere."""
    server = EmbeddedServer(folder)
    server.start()
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    assert server.wait(10) == -signal.SIGKILL
    assert (server.running, (folder / "server.sock").exists(), find_socket(folder)) == (False, True, None)
    server.stop()
    with EmbeddedServer(folder) as again:
        assert connect(again).ping()


def test_a_long_path_gets_its_socket_elsewhere(folder: Path, connect: Connect) -> None:
    """Clients that know the folder find it, and nothing of it is left."""
    deep = folder / ("d" * 100)
    with EmbeddedServer(deep) as server:
        elsewhere = server.socket.parent
        assert deep not in server.socket.parents
        assert find_socket(deep) == server.socket
        assert connect(server).ping()
    assert not elsewhere.exists()
    assert find_socket(deep) is None


def test_a_ctrl_c_does_not_reach_the_server(folder: Path) -> None:
    """It goes to the terminal's foreground group, and the server is in a session of its own."""
    with EmbeddedServer(folder) as server:
        assert server.pid is not None
        assert os.getsid(server.pid) == os.getpgid(server.pid) == server.pid


def test_a_server_outlives_the_thread_that_started_it(folder: Path) -> None:
    """Linux sends the death signal when a thread ends, so the thread that forks must be one that stays."""
    server = EmbeddedServer(folder)
    starting = threading.Thread(target=server.start)
    starting.start()
    starting.join()
    assert server.wait(0.3) is None
    server.stop()


def test_a_frozen_server_is_killed_after_the_time_to_stop(folder: Path) -> None:
    """A stop ends in bounded time, whatever state the server is in."""
    server = EmbeddedServer(folder)
    server.start()
    pid = server.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    server.stop(timeout_s=0.1)
    assert gone(pid)


@pytest.fixture
def owner(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process, which starts a server on the folder, prints its process number and waits."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a death signal")
def test_a_server_dies_with_an_owner_that_was_killed_and_loses_nothing(
    folder: Path, owner: subprocess.Popen[str], connect: Connect
) -> None:
    """A new owner can take over at once: it waits for the last of the old server."""
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    connect(EmbeddedServer(folder)).set("kept", "yes")
    owner.kill()
    owner.wait()
    with EmbeddedServer(folder) as server:
        assert gone(pid)
        assert connect(server).get("kept") == b"yes"


def test_a_server_ends_with_an_owner_that_forgot_to_stop_it(folder: Path, owner: subprocess.Popen[str]) -> None:
    """The interpreter's end is enough."""
    assert owner.stdout is not None
    assert owner.stdin is not None
    pid = int(owner.stdout.readline())
    owner.stdin.close()
    assert owner.wait() == 0
    wait_until(lambda: gone(pid), description="the server is gone")
    assert not (folder / "server.sock").exists()


def test_another_process_is_named_as_the_owner(folder: Path, owner: subprocess.Popen[str]) -> None:
    """Whoever is refused knows whom to ask."""
    assert owner.stdout is not None
    owner.stdout.readline()
    with pytest.raises(DataDirInUse, match=f"process {owner.pid} "):
        EmbeddedServer(folder).start()


def test_a_redis_of_the_oldest_supported_version_serves_too(folder: Path, connect: Connect) -> None:
    """Every argument is one that Redis 7.0 knows."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("no redis-server on PATH")
    with EmbeddedServer(folder, program=Path(program)) as server:
        assert connect(server).config_get("appendonly") == {"appendonly": "yes"}


def test_the_program_is_the_wheels_then_valkey_then_redis_on_the_path(folder: Path) -> None:
    """And if there is none, the error says what to do."""
    assert find_server_program().name == "valkey-server"
    with pytest.raises(ServerUnavailable, match=r"cordwood\[embedded\].* CORDWOOD_REDIS_URL"):
        find_server_program(wheel=lambda: None, search_path=str(folder))
    for name in ("redis-server", "valkey-server"):
        (folder / name).touch(mode=0o755)
        assert find_server_program(wheel=lambda: None, search_path=str(folder)) == folder / name


def test_a_url_is_the_given_one_else_that_of_the_running_server(folder: Path) -> None:
    """Without either the error names both remedies; nothing is started and nothing created."""
    settings = Settings(data_dir=folder / "data")
    with pytest.raises(ServerUnavailable, match="set CORDWOOD_REDIS_URL, or start one with `cordwood server`"):
        resolve_url(settings)
    assert not list(folder.iterdir())
    with EmbeddedServer(folder / "data") as server:
        assert resolve_url(settings) == server.url
        given = Settings(data_dir=folder / "data", redis_url="redis://example.org/1")
        assert resolve_url(given) == "redis://example.org/1"
