"""C40: what must hold for Redis Cluster, seen in what a single server is sent by the whole product."""

from collections.abc import Iterator

import pytest
import redis
from click.testing import CliRunner
from redis.crc import key_slot

from cordwood import Client, Job
from cordwood.cli import cli
from cordwood.keys import queue_keys
from cordwood.scripts import script
from cordwood.settings import QueueSettings, Settings
from cordwood_worker.testing import FaultBackend
from cordwood_worker.worker import Loaded, Worker
from tests.clients import KINDS, opened
from tests.finishing import HandWorker
from tests.monitor import Monitor
from tests.seen_commands import SeenCommand, keys_of, seen_commands

AWKWARD_IDS = ("plain", "a{x}b", "{x}", "}{", "{}", "ünï{çødé}")
WRITES = {
    "submit": b"XADD", "watch": b"HMGET", "start": b"HSET", "mark": b"HSET", "finish": b"XDEL", "retry": b"ZADD",
    "fail": b"XDEL", "dead": b"XADD", "release": b"XADD", "renew": b"XCLAIM", "beat": b"ZADD", "reclaim": b"XCLAIM",
    "promote": b"XADD", "expire": b"XDEL", "cancel": b"XDEL", "reap": b"XGROUP", "repair": b"XADD",
}  # fmt: skip
"""Each script, and a command that it issues only when it has something to do."""


@pytest.fixture(scope="module")
def record() -> list[SeenCommand]:
    """What the product sent, kept for all tests of this file."""
    return []


def use_client(client: Client, worker: HandWorker) -> None:
    """Submit, wait, look and cancel, with IDs that look like hash tags."""
    client.submit_many([Job(inputs=("x",), id=job_id) for job_id in AWKWARD_IDS])
    with worker.serving():
        client.wait_many(AWKWARD_IDS, timeout_s=10)
        list(client.as_completed(AWKWARD_IDS, timeout_s=10))
        client.embed(["a", "b"], timeout_s=10)
    client.embed([])
    client.get("{x}")
    client.result("{x}")
    client.submit("x", job_id="to-{cancel}")
    client.cancel(["to-{cancel}", "unknown"])
    client.submit("x", job_id="{over}due", expires_s=0.001)
    client.wait_many(["{over}due"], timeout_s=10)


def use_worker(client: Client, worker: HandWorker, url: str) -> None:
    """Run every script of the worker's side at least once with something to do."""
    ids = [f"{{{name}}}" for name in ("done", "failed", "dead", "retried", "released", "taken", "lost")]
    worker.beat()
    client.submit_many([Job(inputs=("x",), id=job_id) for job_id in ids])
    by_id = {attempt.job_id: attempt for attempt in worker.take_exactly(len(ids))}
    worker.attempts.mark("run", ids)
    worker.upkeep.renew()
    worker.finish([by_id["{done}"]])
    worker.fail([by_id["{failed}"]])
    worker.bury([by_id["{dead}"]])
    worker.retry([by_id["{retried}"]])
    worker.attempts.release([(by_id["{released}"].entry, by_id["{released}"].token)])
    worker.upkeep.promote()
    client.submit("x", job_id="{late}", expires_s=0.001)
    worker.upkeep.expire()
    worker.attempts.mark("run", ())
    worker.redis.zrem(worker.keys.named("workers"), worker.consumer)
    worker.redis.xdel(worker.keys.lane("normal"), by_id["{lost}"].entry.entry_id)
    with HandWorker(url) as heir:
        heir.beat()
        heir.attempts.start(heir.upkeep.reclaim(10).entries)
        heir.upkeep.repair()
        heir.finish(heir.take())
        heir.upkeep.reap()
        heir.upkeep.withdraw()
    client.cancel(ids)


def use_whole_worker(client: Client, url: str) -> None:
    """Run a worker until the queue is empty."""
    job_ids = client.submit_many([Job(inputs=("x",), id="{x}"), Job(inputs=("BAD",), id="{bad}")])
    queues = {"embed": QueueSettings(model="python:cordwood_worker.testing:fault_backend")}
    Worker(Settings(queues=queues, max_batch_rows=2), [Loaded("embed", FaultBackend())], url).run(burst=True)
    client.wait_many(job_ids, timeout_s=10)


def use_cli(url: str) -> None:
    """Look at everything."""
    for line in ("queue ls", "queue show embed", "worker ls", "job show {x}"):
        assert CliRunner().invoke(cli, ["--redis-url", url, *line.split()]).exit_code == 0


@pytest.fixture
def everything(redis_url: str, redis_client: redis.Redis, record: list[SeenCommand]) -> list[SeenCommand]:
    """What the whole product sends; it is run once."""
    if record:
        return record
    with Monitor(redis_url) as monitor:
        for kind in KINDS:
            with opened(kind, redis_url) as client, HandWorker(redis_url) as worker:
                use_client(client, worker)
                use_worker(client, worker, redis_url)
            redis_client.flushall()
        with opened("blocking", redis_url) as client:
            use_whole_worker(client, redis_url)
        use_cli(redis_url)
        record += seen_commands(monitor.heard())
    return record


def scripts_in(commands: list[SeenCommand]) -> Iterator[tuple[str, SeenCommand]]:
    """The calls of scripts, with the scripts' names."""
    by_digest = {script(name).sha.encode(): name for name in WRITES}
    by_text = {script(name).text.encode(): name for name in WRITES}
    for command in commands:
        if command.name in {"EVALSHA", "EVAL"}:
            yield (by_digest | by_text)[command.words[1]], command


def test_c40_every_script_was_called_with_something_to_do(everything: list[SeenCommand]) -> None:
    """Otherwise the other tests of this file would show little."""
    issued: dict[str, set[bytes]] = {name: set() for name in WRITES}
    for name, command in scripts_in(everything):
        issued[name] |= {words[0].upper() for words in command.inner}
    for name, wanted in WRITES.items():
        assert wanted in issued[name], f"{name} issued only {sorted(issued[name])}"


def test_c40_no_command_and_no_script_touches_two_slots(
    everything: list[SeenCommand], redis_client: redis.Redis
) -> None:
    """Nor does a transaction: there is none."""
    for command in everything:
        slots = {key_slot(key.encode()) for key in keys_of(redis_client, command.words)}
        assert len(slots) <= 1, command.words
        assert command.name not in {"MULTI", "EXEC", "WATCH"}


def test_c40_every_key_that_a_script_touches_is_passed_as_a_key(
    everything: list[SeenCommand], redis_client: redis.Redis
) -> None:
    """A cluster routes by the keys that were passed."""
    touched = 0
    for name, command in scripts_in(everything):
        passed = set(keys_of(redis_client, command.words))
        for words in command.inner:
            keys = set(keys_of(redis_client, words))
            assert keys <= passed, f"{name}: {words}"
            touched += len(keys)
    assert touched > 100


def test_c40_an_undeclared_key_would_be_noticed(redis_url: str, redis_client: redis.Redis) -> None:
    """So the test above can fail."""
    with Monitor(redis_url) as monitor:
        redis_client.eval("return redis.call('GET', 'cw:{a}:\"odd\\n')", 1, "cw:{a}:declared")
        (seen,) = [command for command in seen_commands(monitor.heard()) if command.name == "EVAL"]
    assert keys_of(redis_client, seen.words) == ["cw:{a}:declared"]
    assert [keys_of(redis_client, words) for words in seen.inner] == [['cw:{a}:"odd\n']]


def test_c40_an_id_with_braces_does_not_move_a_record_to_another_slot() -> None:
    """Only the first braces of a key count, and they are the queue's."""
    keys = queue_keys("embed")
    slots = {key_slot(key.encode()) for key in (*keys.fixed, *map(keys.job, AWKWARD_IDS))}
    assert len(slots) == 1


def test_c40_only_the_set_of_queues_lies_outside_the_queues_slot(
    everything: list[SeenCommand], redis_client: redis.Redis
) -> None:
    """And no script touches it."""
    outside = {
        (command.name, key)
        for command in everything
        for key in keys_of(redis_client, command.words)
        if not key.startswith("cw:{embed}:")
    }
    assert outside == {("SADD", "cw:queues"), ("SMEMBERS", "cw:queues")}
