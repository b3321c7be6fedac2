"""A worker by hand: tests of clients say which job ends when and how, without a worker's process."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self

from cordwood import codec, connection
from cordwood.job import JobLimits, Payload, decode_payload
from cordwood.keys import ALL_LANES, Keys, queue_keys
from cordwood.result import Outputs, encode_outputs
from cordwood_worker.broker.attempts import Attempts, Done, Fault
from cordwood_worker.broker.connection import QueueConnection
from cordwood_worker.broker.lanes import LaneReader
from cordwood_worker.broker.upkeep import Upkeep
from cordwood_worker.entry import Attempt, Refusal
from cordwood_worker.testing import fault_vector
from tests.waiting import wait_until

if TYPE_CHECKING:
    from numpy.typing import NDArray

LIMITS: Final = JobLimits(max_payload_bytes=1 << 24, max_inputs=256)
DEAD_TTL_S: Final = 3600.0
HEARTBEAT_S: Final = 1.0
HEARTBEAT_TTL_S: Final = 60.0
MAX_RESULT_BYTES: Final = 1 << 22


class HandWorker:
    """Takes jobs of one queue and ends them as it is told; shows no sign of life unless told to.

    A result holds `fault_vector` of each text. Use it as a context manager, which creates the lanes' groups.
    """

    def __init__(self, url: str, *, queue: str = "embed", fingerprint: str = "hand-made") -> None:
        self.keys: Keys = queue_keys(queue)
        self.consumer = f"hand.0.{secrets.token_hex(4)}"
        self.fingerprint = fingerprint
        self.redis = connection.connect(url)
        server = QueueConnection(self.redis, self.keys, self.consumer)
        self.attempts = Attempts(server, DEAD_TTL_S, time.monotonic)
        self.upkeep = Upkeep(server, heartbeat_s=HEARTBEAT_S, ttl_s=HEARTBEAT_TTL_S, clock=time.monotonic)
        self.lanes = LaneReader(server, time.monotonic)

    def __enter__(self) -> Self:
        self.lanes.create_groups()
        return self

    def __exit__(self, *exc: object) -> None:
        self.redis.close()

    def beat(self, **info: object) -> None:
        """Show a sign of life, and say this of itself."""
        self.upkeep.beat(codec.pack({"model": "hand", "held": 0, **info}, max_bytes=1000))

    def take(self, most: int = 512, *, block_ms: int = 0) -> list[Attempt]:
        """Read what is ready, at most `most`, and begin an attempt at each job."""
        entries = self.lanes.read_in_turn(ALL_LANES, most)
        if not entries and block_ms > 0:
            entries = self.lanes.wait(most, block_ms)
        return [answer for answer in self.attempts.start(entries) if not isinstance(answer, Refusal)]

    def take_exactly(self, count: int) -> list[Attempt]:
        """Wait until this many jobs were taken, and return them by the order of their entries."""
        taken: list[Attempt] = []

        def enough() -> bool:
            taken.extend(self.take(count - len(taken)))
            return len(taken) == count

        wait_until(enough, description=f"{count} jobs are ready")
        return taken

    def finish(self, attempts: Sequence[Attempt], *, dim: int = 8) -> list[str]:
        """End jobs as done; the answers are those of the script."""
        return self.attempts.finish([Done(attempt, self.result(attempt, dim)) for attempt in attempts])

    def fail(self, attempts: Sequence[Attempt], code: str = "ValueError", text: str = "no good") -> list[str]:
        """End jobs as failed."""
        return self.attempts.fail([Fault(attempt, code, text) for attempt in attempts])

    def bury(self, attempts: Sequence[Attempt], code: str = "max-attempts", text: str = "gave up") -> list[str]:
        """End jobs in the dead letters."""
        return self.attempts.bury([Fault(attempt, code, text) for attempt in attempts])

    def retry(self, attempts: Sequence[Attempt], *, delay_ms: int = 0) -> list[str]:
        """Put jobs aside for another attempt."""
        return self.attempts.retry([Fault(attempt, "RuntimeError", "again") for attempt in attempts], delay_ms)

    def result(self, attempt: Attempt, dim: int = 8) -> bytes:
        """Encode the result of a job of texts."""
        payload = decoded(attempt)
        rows: list[NDArray[Any]] = [fault_vector(str(text), dim) for text in payload.inputs]
        outputs = Outputs(
            task="embed",
            values=_stacked(rows),
            tokens=tuple(1 for _ in rows),
            truncated=(),
            model="hand",
            fingerprint=self.fingerprint,
            precision="fp32",
            metadata=payload.metadata,
        )
        return encode_outputs(outputs, max_bytes=MAX_RESULT_BYTES)

    @contextmanager
    def serving(self, act: Callable[[list[Attempt]], object] | None = None) -> Iterator[None]:
        """While the block lasts, a thread takes what is ready and ends it: as done, or as `act` does."""
        over = threading.Event()
        failures: list[Exception] = []

        def serve() -> None:
            try:
                while not over.is_set():
                    taken = self.take(block_ms=20)
                    if taken:
                        (act or self.finish)(taken)
            except Exception as error:  # noqa: BLE001 - raised where the block ends
                failures.append(error)

        thread = threading.Thread(target=serve, name="hand-worker")
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        if failures:
            raise failures[0]


def decoded(attempt: Attempt) -> Payload:
    """What a job asks for."""
    return decode_payload(attempt.payload, LIMITS)


def _stacked(rows: list[NDArray[Any]]) -> NDArray[Any]:
    import numpy as np

    return np.stack(rows)
