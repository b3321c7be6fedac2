"""The thread that reads a queue's `done` stream for a blocking client, while somebody waits."""

from __future__ import annotations

from concurrent.futures import Future
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Final

from cordwood import connection
from cordwood.connection import Patience
from cordwood.done import READ_BLOCK_MS, READ_COUNT, DoneTable, position_commands, read_done, read_position
from cordwood.errors import CordwoodError

if TYPE_CHECKING:
    from cordwood.done import Position
    from cordwood.keys import Keys

READER_PATIENCE: Final = Patience(timeout_s=READ_BLOCK_MS / 1000 + 1.0, retries=0)
"""A lost reply costs nothing here: the same position is read again."""
FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 1.0


class DoneThread:
    """Reads one shard from where it stands when the first wait begins, and ends when nobody waits any more."""

    def __init__(self, url: str, keys: Keys, shard: int, table: DoneTable) -> None:
        self._redis = connection.connect(url, READER_PATIENCE, max_connections=1)
        self._stream = keys.done(shard)
        self._position_commands = position_commands(keys, shard)
        self._table = table
        self._lock = Lock()
        self._stop = Event()
        self._thread: Thread | None = None
        self._reading: Future[None] = Future()

    def listen(self) -> None:
        """Return once the stream is being read for every ticket that is open by now.

        Raises ServerUnavailable if it cannot be.
        """
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._reading = Future()
                self._thread = Thread(target=self._run, args=(self._reading,), name="cordwood-done", daemon=True)
                self._thread.start()
            reading = self._reading
        reading.result()

    def close(self) -> None:
        """Have the thread end and close its connection, within a second; nobody waits for it."""
        with self._lock:
            self._stop.set()
            if self._thread is None:
                self._redis.close()

    def read_once(self, position: Position) -> Position:
        """Read what has come since `position`, waiting for it up to `READ_BLOCK_MS`, and tell those who wait."""
        with connection.translated_errors():
            reply = self._redis.xread({self._stream: position.entry_id}, count=READ_COUNT, block=READ_BLOCK_MS)
        job_ids, gap, position = read_done(reply, position)
        if gap:
            self._table.tell_gap()
        elif job_ids:
            self._table.tell(job_ids)
        return position

    def _run(self, reading: Future[None]) -> None:
        try:
            position = self._find_position()
        except CordwoodError as error:
            with self._lock:
                self._leave()
            reading.set_exception(error)
        else:
            reading.set_result(None)
            self._read_on(position)
        finally:
            # Nothing to do but where the thread dies of something else: nobody shall wait for it.
            reading.cancel()

    def _read_on(self, position: Position) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._ends_when_idle():
            try:
                position = self.read_once(position)
            except CordwoodError:
                # What happened meanwhile may never be told: those who wait look for themselves once it answers.
                self._stop.wait(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                self._table.tell_gap()
            else:
                pause_s = FIRST_PAUSE_S

    def _ends_when_idle(self) -> bool:
        with self._lock:
            if self._stop.is_set() or self._table.is_idle:
                self._leave()
                return True
            return False

    def _leave(self) -> None:
        self._thread = None
        if self._stop.is_set():
            self._redis.close()

    def _find_position(self) -> Position:
        with connection.translated_errors(), self._redis.pipeline(transaction=False) as pipeline:
            for command in self._position_commands:
                pipeline.execute_command(*command)
            return read_position(pipeline.execute())
