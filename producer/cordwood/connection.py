"""Connections to the server, and what its errors mean to a caller."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import redis
import redis.asyncio
import redis.exceptions
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import AuthenticationError, NoScriptError, RedisError
from redis.retry import Retry

from cordwood.errors import CordwoodError, ServerFull, ServerUnavailable
from cordwood.scripts import Script, script
from cordwood.steps import Argument, ScriptCall

SOCKET_TIMEOUT_S: Final = 5.0
MAX_CONNECTIONS: Final = 32
_RETRIES: Final = 3
_BACKOFF_BASE_S: Final = 0.02
_BACKOFF_CAP_S: Final = 0.5

SyncRedis = redis.Redis
AsyncRedis = redis.asyncio.Redis


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a connection waits for a reply, in seconds, and how often a call is repeated after a lost one.

    Every script may be repeated safely. A blocking read may not: what its lost reply held would be forgotten.
    """

    timeout_s: float = SOCKET_TIMEOUT_S
    retries: int = _RETRIES


PATIENT: Final = Patience()
HASTY: Final = Patience(timeout_s=1.5, retries=0)
"""For what is repeated by whoever calls, and must not hold it up: a wait that is over ends by then."""


def connect(url: str, patience: Patience = PATIENT, *, max_connections: int = MAX_CONNECTIONS) -> SyncRedis:
    """Return a client with a blocking pool of its own; nothing is sent yet."""
    retry = Retry(ExponentialWithJitterBackoff(base=_BACKOFF_BASE_S, cap=_BACKOFF_CAP_S), patience.retries)
    pool = redis.BlockingConnectionPool.from_url(
        url,
        protocol=2,
        socket_timeout=patience.timeout_s,
        socket_connect_timeout=patience.timeout_s,
        retry=retry,
        max_connections=max_connections,
        timeout=patience.timeout_s,
    )
    return redis.Redis.from_pool(pool)


def connect_async(url: str, patience: Patience = PATIENT, *, max_connections: int = MAX_CONNECTIONS) -> AsyncRedis:
    """Return an asyncio client with a blocking pool of its own; nothing is sent yet."""
    retry = AsyncRetry(ExponentialWithJitterBackoff(base=_BACKOFF_BASE_S, cap=_BACKOFF_CAP_S), patience.retries)
    pool: redis.asyncio.BlockingConnectionPool = redis.asyncio.BlockingConnectionPool.from_url(
        url,
        protocol=2,
        socket_timeout=patience.timeout_s,
        socket_connect_timeout=patience.timeout_s,
        retry=retry,
        max_connections=max_connections,
        timeout=patience.timeout_s,
    )
    return redis.asyncio.Redis.from_pool(pool)


@contextmanager
def translated_errors() -> Iterator[None]:
    """Turn the library's errors into ServerUnavailable, ServerFull or, for what should not happen, CordwoodError."""
    try:
        yield
    except redis.exceptions.OutOfMemoryError as error:
        raise ServerFull("the server is out of memory (maxmemory) and refused the call") from error
    except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError) as error:
        what = "the server refused the login" if _is_login(error) else "no answer from the server"
        raise ServerUnavailable(f"{what}: {error}") from error
    except redis.exceptions.ReadOnlyError as error:
        raise ServerUnavailable("the server is a read-only replica now") from error
    except RedisError as error:
        if "OOM " in str(error):
            raise ServerFull("the server is out of memory (maxmemory) and refused the call") from error
        raise CordwoodError(f"the server refused a call: {error}") from error


def run_script(client: SyncRedis, call: ScriptCall, *, source: Script | None = None) -> Any:
    """Run a script by its digest, or by its text where the server does not know it (yet, or any more)."""
    text = source or script(call.name)
    try:
        return client.execute_command("EVALSHA", *_arguments(text.sha, call))
    except NoScriptError:
        return client.execute_command("EVAL", *_arguments(text.text, call))


async def run_script_async(client: AsyncRedis, call: ScriptCall) -> Any:
    """As `run_script`, awaited."""
    text = script(call.name)
    try:
        return await client.execute_command("EVALSHA", *_arguments(text.sha, call))
    except NoScriptError:
        return await client.execute_command("EVAL", *_arguments(text.text, call))


def _is_login(error: BaseException) -> bool:
    """The asyncio connection wraps what the server said into a plain error."""
    return any(isinstance(each, AuthenticationError) for each in (error, error.__cause__, error.__context__))


def _arguments(head: str, call: ScriptCall) -> tuple[Argument, ...]:
    return (head, len(call.keys), *call.keys, *call.args)
