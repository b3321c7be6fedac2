"""The check that nothing grows without bound on the server: which keys may be there after a test."""

from __future__ import annotations

import re
from typing import Any, Final

import redis

CONSTANT_KEYS: Final = frozenset(
    {
        "delayed",
        "expiring",
        "vt",
        "dead",
        "outbox",
        "workers",
        "batch",
        "suspects",
        "info",
        "sets",
        "stats",
        "meta",
        "spec",
        *(f"lane:{lane}" for lane in ("again", "high", "normal", "low")),
        *(f"fair:{lane}" for lane in ("high", "normal", "low")),
        *(f"done:{shard}" for shard in range(8)),
    }
)
"""The keys that every queue may have for good, spelled here again so that a new one is a decision."""

_KEY: Final = re.compile(r"cw:\{[A-Za-z0-9._-]{1,64}(?:#\d+)?\}:(?P<name>.+)", re.DOTALL)
_FINAL_STATES: Final = frozenset({"done", "failed", "dead", "cancelled", "expired"})
_LIVE_STATES: Final = frozenset({"queued", "running", "delayed"})
_NO_TTL: Final = -1


def leaked_keys(server: redis.Redis, *, live_jobs_allowed: bool = False) -> list[str]:
    """Return the keys that should not be there, sorted, each with the reason.

    Allowed are keys with a TTL, `cw:queues`, the constant set of each queue, ended jobs whose results were asked to
    stay for good, and, with `live_jobs_allowed`, jobs that have not ended. A server that speaks either protocol, with
    or without decoded responses, is read alike.
    """
    leaked: list[str] = []
    for key in _keys_without_ttl(server):
        reason = _reason(server, key, live_jobs_allowed=live_jobs_allowed)
        if reason:
            leaked.append(f"{key} ({reason})")
    return sorted(leaked)


def _keys_without_ttl(server: redis.Redis) -> list[str]:
    """Ask for all TTLs together: there may be tens of thousands of keys."""
    keys = list(server.scan_iter(count=1000))
    with server.pipeline(transaction=False) as pipe:
        for key in keys:
            pipe.pttl(key)
        return [_text(key) for key, ttl_ms in zip(keys, pipe.execute(), strict=True) if int(ttl_ms) == _NO_TTL]


def _reason(server: redis.Redis, key: str, *, live_jobs_allowed: bool) -> str:
    match = _KEY.fullmatch(key)
    if key == "cw:queues" or (match and match["name"] in CONSTANT_KEYS):
        return ""
    if match is None:
        return "not one of Cordwood's keys"
    if not match["name"].startswith("job:"):
        return "not in the constant set"
    if _text(server.type(key)) != "hash":
        return "a record that is not a hash"
    values: Any = server.hmget(key, ["st", "rt"])
    state, result_ttl = (_text(value or b"") for value in values)
    if state in _LIVE_STATES:
        return "" if live_jobs_allowed else f"a job still {state}: drain it, or mark the test leaves_jobs"
    if state in _FINAL_STATES:
        return "" if result_ttl == "0" else f"a job that ended {state}, without a TTL"
    return f"a record in the state {state!r}"


def _text(value: Any) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
