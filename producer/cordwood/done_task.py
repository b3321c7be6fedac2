"""The task that reads a queue's `done` stream for an asyncio client, while somebody waits."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from cordwood import connection
from cordwood.done import READ_BLOCK_MS, READ_COUNT, DoneTable, position_commands, read_done, read_position
from cordwood.done_thread import FIRST_PAUSE_S, LONGEST_PAUSE_S, READER_PATIENCE
from cordwood.errors import CordwoodError

if TYPE_CHECKING:
    from cordwood.done import Position
    from cordwood.keys import Keys

CANCEL_PAUSE_S: Final = 0.02


class DoneTask:
    """Reads one shard from where it stands when the first wait begins, and ends when nobody waits any more."""

    def __init__(self, url: str, keys: Keys, shard: int, table: DoneTable) -> None:
        self._redis = connection.connect_async(url, READER_PATIENCE, max_connections=1)
        self._stream = keys.done(shard)
        self._position_commands = position_commands(keys, shard)
        self._table = table
        self._task: asyncio.Task[None] | None = None
        self._reading: asyncio.Future[None] | None = None

    async def listen(self) -> None:
        """Return once the stream is being read for every ticket that is open by now.

        Raises ServerUnavailable if it cannot be.
        """
        if self._reading is None or self._task is None or self._task.done():
            self._reading = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._run(self._reading), name="cordwood-done")
        # Others wait for the same answer, so a wait that is cancelled must not take it from them.
        await asyncio.shield(self._reading)

    async def close(self) -> None:
        """End the task at once."""
        while self._task is not None and not self._task.done():
            # Again and again: `asyncio.wait_for`, which redis-py uses, loses a cancellation before Python 3.12.
            self._task.cancel()
            await asyncio.wait([self._task], timeout=CANCEL_PAUSE_S)
        if self._reading is not None:
            _refuse(self._reading, CordwoodError("the client was closed"))
        await self._redis.aclose()

    async def read_once(self, position: Position) -> Position:
        """Read what has come since `position`, waiting for it up to `READ_BLOCK_MS`, and tell those who wait."""
        with connection.translated_errors():
            reply = await self._redis.xread({self._stream: position.entry_id}, count=READ_COUNT, block=READ_BLOCK_MS)
        job_ids, gap, position = read_done(reply, position)
        if gap:
            self._table.tell_gap()
        elif job_ids:
            self._table.tell(job_ids)
        return position

    async def _run(self, reading: asyncio.Future[None]) -> None:
        try:
            position = await self._find_position()
        except CordwoodError as error:
            self._task = None
            _refuse(reading, error)
            return
        reading.set_result(None)
        await self._read_on(position)

    async def _read_on(self, position: Position) -> None:
        pause_s = FIRST_PAUSE_S
        # No await lies between the look and the end: a later `listen` starts another task.
        while not self._table.is_idle:
            try:
                position = await self.read_once(position)
            except CordwoodError:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                self._table.tell_gap()
            else:
                pause_s = FIRST_PAUSE_S
        self._task = None

    async def _find_position(self) -> Position:
        with connection.translated_errors():
            async with self._redis.pipeline(transaction=False) as pipeline:
                for command in self._position_commands:
                    pipeline.execute_command(*command)
                return read_position(await pipeline.execute())


def _refuse(reading: asyncio.Future[None], error: CordwoodError) -> None:
    if not reading.done():
        reading.set_exception(error)
        # Looked at, so that it is not reported as an error that nobody saw when no wait is left.
        reading.exception()
