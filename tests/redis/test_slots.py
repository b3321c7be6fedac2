"""C40: whatever is sent touches one cluster slot, and scripts touch no key that they were not given."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest
import redis
from redis.crc import key_slot
from redis.exceptions import RedisError, ResponseError

from cordwood import Client
from cordwood.calls import sweep_call, watch_call
from cordwood.connection import connect
from cordwood.settings import Settings
from tests.interleaving.world import CLOCK_KEY
from tests.redis.script_bench import TTL_MS, Bench, done, fault

SCRIPT_COMMANDS: Final = {"eval", "evalsha"}
ODD_ID: Final = "a{x}b"
QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
LAST_WORD: Final = "end of the recording"


class Recording:
    """Every command that the server executed, those issued by scripts with the keys their script was given."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []
        self.undeclared: list[str] = []
        self.scripts = 0
        self._declared: set[str] = set()

    def add(self, line: str, keys_of: Callable[[list[str]], list[str]]) -> None:
        """Take in one line of MONITOR: time, database and source in brackets, then the words in quotes."""
        words = QUOTED.findall(line)
        name = words[0].lower()
        if " lua]" in line.split('"', 1)[0]:
            self.undeclared += [key for key in keys_of(words) if key not in self._declared and key != CLOCK_KEY]
            return
        if name in SCRIPT_COMMANDS:
            self.scripts += 1
            self._declared = set(words[3 : 3 + int(words[2])])
        self.commands.append(words)


def keys_of(server: redis.Redis, words: list[str]) -> list[str]:
    """Ask the server which of a command's words are keys; none for a command without any."""
    try:
        found: Any = server.command_getkeys(*words)
    except ResponseError:
        return []
    return [str(key) for key in found]


@contextmanager
def recorded(server: redis.Redis) -> Iterator[Recording]:
    """Record what is executed while the block lasts."""
    recording, ready = Recording(), threading.Event()
    asking = redis.Redis(connection_pool=server.connection_pool)

    def listen() -> None:
        connection = server.connection_pool.get_connection()
        connection.send_command("MONITOR")
        connection.read_response()
        ready.set()
        while LAST_WORD not in (line := connection.read_response().decode("utf-8", "replace")):
            if '"COMMAND"' not in line:
                recording.add(line, lambda words: keys_of(asking, words))
        connection.disconnect()
        server.connection_pool.release(connection)

    listener = threading.Thread(target=listen)
    listener.start()
    ready.wait(10.0)
    yield recording
    server.echo(LAST_WORD)
    listener.join(30.0)
    assert not listener.is_alive()


def go_through_everything(bench: Bench) -> None:
    """Call each script in each of its ways, on jobs of which one has an odd ID."""
    first, second = bench.hire("first"), bench.hire("second")
    bench.submit(ODD_ID, "fail", "bury", "release", "left", expires_s=600.0)
    attempts = {item.job_id: item for item in first.begin()}
    first.attempts.mark("run", [ODD_ID, "left"])
    first.attempts.retry([fault(attempts[ODD_ID])], 100)
    first.attempts.fail([fault(attempts["fail"])])
    first.attempts.bury([fault(attempts["bury"])])
    first.attempts.release([(attempts["release"].entry, attempts["release"].token)])
    first.upkeep.renew()
    bench.submit("late", delay_s=5.0, expires_s=1.0)
    for _ in range(3):
        bench.world.advance(TTL_MS // 2 + 100)
        second.upkeep.beat(b"")
    second.upkeep.promote()
    second.upkeep.expire()
    taken = second.begin(list(second.upkeep.reclaim(10).entries))
    second.attempts.finish([done(item) for item in [*taken, *second.begin()]])
    second.upkeep.reap()
    bench.submit("gone")
    bench.redis.delete(bench.keys.lane("normal"))
    second.reader.create_groups()
    second.upkeep.repair()
    bench.world.call(watch_call(bench.keys, [ODD_ID, "gone"], waiter_mask=2))
    bench.world.call(sweep_call("cancel", bench.keys, ["gone", "missing"]))
    second.upkeep.announce({"task": "embed"})


def look_with_the_command_line(url: str) -> None:
    """Run every command that looks."""
    for words in (
        ["queue", "ls"],
        ["queue", "show", "bench"],
        ["job", "show", ODD_ID, "-q", "bench"],
        ["worker", "ls"],
    ):
        command = [sys.executable, "-m", "cordwood.cli", "--redis-url", url, *words]
        subprocess.run(command, check=True, capture_output=True)


def test_c40_every_command_touches_one_slot_and_every_script_only_its_keys(redis_url: str) -> None:
    """Scripts, pipelines' commands, blocking reads and the command line, with a brace in a job's ID."""
    client = connect(redis_url)
    with recorded(client) as recording:
        go_through_everything(Bench(client))
        look_with_the_command_line(redis_url)
        with Client(redis_url, queue="other", settings=Settings()) as application:
            application.cancel(application.submit("text"))
    assert recording.scripts > 30
    assert recording.undeclared == []
    scattered = []
    for words in recording.commands:
        given = words[3 : 3 + int(words[2])] if words[0].lower() in SCRIPT_COMMANDS else keys_of(client, words)
        if len({key_slot(key.encode()) for key in given}) > 1:
            scattered.append(words[:4])
    assert scattered == []
    client.delete(CLOCK_KEY)
    client.close()


def test_a_recording_notices_a_script_that_touches_a_key_it_was_not_given(redis_url: str) -> None:
    """So the test above can fail."""
    client = connect(redis_url)
    with recorded(client) as recording:
        client.eval("return redis.call('GET', 'cw:{a}:not-declared')", 1, "cw:{a}:declared")
        with pytest.raises(RedisError):
            client.execute_command("NOSUCH")
    assert recording.undeclared == ["cw:{a}:not-declared"]
    client.close()
