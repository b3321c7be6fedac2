"""One worker's connections to one queue: a shared one for scripts, and the call that all of them go through."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cordwood import connection
from cordwood.calls import record_keys
from cordwood.connection import SyncRedis
from cordwood.keys import Keys
from cordwood.steps import Argument, ScriptCall


@dataclass(frozen=True, slots=True)
class QueueConnection:
    """Who this worker is on which queue, and the client that it speaks through.

    `consumer` is `<name>.<pid>.<random>`, and never used again.
    """

    redis: SyncRedis
    keys: Keys
    consumer: str

    def call(self, name: str, job_ids: Iterable[str], args: Iterable[Argument]) -> Any:
        """Call a script on these jobs' records; raises ServerUnavailable, ServerFull or CordwoodError."""
        call = ScriptCall(name, record_keys(self.keys, job_ids), tuple(args))
        with connection.translated_errors():
            return connection.run_script(self.redis, call)

    def commands(self, *commands: tuple[Argument, ...]) -> list[Any]:
        """Send plain commands together; raises as `call` does, for the first command that failed."""
        with connection.translated_errors(), self.redis.pipeline(transaction=False) as pipeline:
            for command in commands:
                pipeline.execute_command(*command)
            return pipeline.execute()
