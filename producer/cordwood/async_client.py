"""The asyncio client: the same operations as `Client`, awaited."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Coroutine, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from cordwood import connection
from cordwood.client import choose_url, load_settings
from cordwood.connection import HASTY, AsyncRedis
from cordwood.core import Core, JobOptions, Work, as_job, as_jobs, succeeded
from cordwood.done_task import DoneTask
from cordwood.errors import CordwoodError, JobNotFound
from cordwood.result import JobRecord, Outcome, Result, read_outcome
from cordwood.steps import Answer, Commands, Ended, Listen, Operation, Park, ScriptCall, Step, proceed
from cordwood.turns import Turns

if TYPE_CHECKING:
    from types import TracebackType

    from numpy.typing import NDArray

    from cordwood.settings import Settings

_T = TypeVar("_T")


class AsyncClient:
    """Puts jobs onto queues and reads their results, for use in one event loop.

    Takes what `Client` takes, and its methods do what those of `Client` do; a cancelled task ends its wait and leaves
    the jobs alone.
    """

    def __init__(self, url: str | None = None, *, queue: str = "embed", settings: Settings | None = None) -> None:
        chosen = load_settings() if settings is None else settings
        self._url = choose_url(url, chosen)
        self._core = Core(chosen, queue, time.monotonic)
        self._redis = connection.connect_async(self._url)
        self._hasty = connection.connect_async(self._url, HASTY)
        self._turns = Turns()
        self._readers: dict[str, DoneTask] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End its connections and tasks. Jobs are not touched; waits of other tasks end with CordwoodError."""
        self._core.close()
        for reader in list(self._readers.values()):
            await reader.close()
        self._readers.clear()
        await self._redis.aclose()
        await self._hasty.aclose()

    async def submit(
        self,
        work: Work,
        *,
        job_id: str | None = None,
        queue: str | None = None,
        admission_control: bool = False,
        **options: Unpack[JobOptions],
    ) -> str:
        """Submit one job and return its ID; see `Client.submit`."""
        job = as_job(work, job_id, options)
        return (await self._perform(self._core.submit(queue, [job], admission_control, numbered=False)))[0]

    async def submit_many(
        self,
        works: Iterable[Work],
        *,
        queue: str | None = None,
        admission_control: bool = False,
        **options: Unpack[JobOptions],
    ) -> list[str]:
        """Submit any number of jobs and return their IDs in order; see `Client.submit_many`."""
        return await self._perform(self._core.submit(queue, as_jobs(works, options), admission_control))

    async def get(self, job_id: str, *, queue: str | None = None) -> JobRecord:
        """Return a job's record as it is now, without waiting; raise JobNotFound if there is none."""
        record = (await self._perform(self._core.look(queue, [job_id])))[0]
        if record is None:
            raise JobNotFound(job_id, f"job {job_id} is not known: never submitted, expired or wiped")
        return record

    async def result(self, job_id: str, *, queue: str | None = None) -> Outcome | None:
        """Return how a job ended, without waiting, or None while it has not."""
        return read_outcome(job_id, (await self._perform(self._core.look(queue, [job_id])))[0])

    async def wait(self, job_id: str, *, timeout_s: float | None = None, queue: str | None = None) -> Result:
        """Wait for a job and return its result, or raise the JobError that says how else it ended."""
        return succeeded((await self.wait_many([job_id], timeout_s=timeout_s, queue=queue))[0])

    async def wait_many(
        self, job_ids: Iterable[str], *, timeout_s: float | None = None, queue: str | None = None
    ) -> list[Outcome]:
        """Wait for jobs and return a Result or a JobError for each, in the order of `job_ids`."""
        return await self._perform(self._core.wait_many(queue, job_ids, timeout_s, asyncio.Event()))

    async def as_completed(
        self, job_ids: Iterable[str], *, timeout_s: float | None = None, queue: str | None = None
    ) -> AsyncGenerator[Outcome, None]:
        """Yield a Result or a JobError for each job as it ends; raise WaitTimeout as `wait_many` does."""
        with self._core.wait(queue, job_ids, timeout_s, asyncio.Event()) as wait:
            while wait.pending:
                for outcome in (await self._perform(wait.next_outcomes())).values():
                    yield outcome

    async def cancel(self, job_ids: str | Iterable[str], *, queue: str | None = None) -> Mapping[str, str]:
        """End jobs as cancelled, whoever holds them, and return the state that each has now."""
        ids = [job_ids] if isinstance(job_ids, str) else list(job_ids)
        return dict(zip(ids, await self._perform(self._core.cancel(queue, ids)), strict=True))

    async def embed(
        self,
        texts: Sequence[str],
        *,
        timeout_s: float | None = None,
        queue: str | None = None,
        **options: Unpack[JobOptions],
    ) -> NDArray[Any]:
        """Return the vectors of the texts, shape (len(texts), dim), float32, in order; see `Client.embed`."""
        return await self._perform(self._core.embed(queue, texts, timeout_s, asyncio.Event(), options))

    async def _perform(self, operation: Operation[_T]) -> _T:
        """Run an operation: perform each step that it yields, and give it the answer or our own error."""
        answer = Answer()
        with closing(operation):
            while not isinstance(following := proceed(operation, answer), Ended):
                answer = await self._answer(following)
            return following.value

    async def _answer(self, step: Step) -> Answer:
        try:
            return Answer(await _cancellable(self._perform_step(step)))
        except CordwoodError as error:
            return Answer(error=error)

    async def _perform_step(self, step: Step) -> Any:
        self._core.check_open()
        match step:
            case Commands() | ScriptCall():
                if step.patient:
                    return await _call(self._redis, step)
                return await self._turns.take(partial(_call, self._hasty, step))
            case Listen(keys):
                await self._reader(keys.queue).listen()
            case Park(ticket, timeout_s):
                return await _wait_for(ticket.signal, timeout_s)
            case _:
                await asyncio.sleep(step.pause_s)
        return None

    def _reader(self, queue: str) -> DoneTask:
        if queue not in self._readers:
            keys = self._core.keys(queue)
            shard = self._core.context.done_shard
            self._readers[queue] = DoneTask(self._url, keys, shard, self._core.table(keys))
        return self._readers[queue]


async def _call(redis: AsyncRedis, step: Commands | ScriptCall) -> Any:
    with connection.translated_errors():
        if isinstance(step, ScriptCall):
            return await connection.run_script_async(redis, step)
        pipeline = redis.pipeline(transaction=False)
        for command in step.commands:
            pipeline.execute_command(*command)
        return await pipeline.execute()


async def _cancellable(step: Coroutine[Any, Any, _T]) -> _T:
    """Await a step, and end if the task was cancelled meanwhile: `asyncio.wait_for`, which redis-py uses, loses a
    cancellation before Python 3.12.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    try:
        return await step
    finally:
        if task and task.cancelling() > before:
            raise asyncio.CancelledError


async def _wait_for(signal: object, timeout_s: float) -> bool:
    if not isinstance(signal, asyncio.Event):
        raise TypeError("an AsyncClient waits for asyncio events")
    try:
        async with asyncio.timeout(timeout_s):
            await signal.wait()
    except TimeoutError:
        return False
    finally:
        signal.clear()
    return True
