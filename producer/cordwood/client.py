"""The blocking client."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from threading import Event
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from cordwood import connection, settings
from cordwood.connection import HASTY
from cordwood.core import Core, JobOptions, Work, as_job, as_jobs, succeeded
from cordwood.done_thread import DoneThread
from cordwood.embedded import resolve_url
from cordwood.errors import CordwoodError, InvalidInput, JobNotFound
from cordwood.result import JobRecord, Outcome, Result, read_outcome
from cordwood.server_url import check_url, masked_url
from cordwood.steps import Answer, Commands, Ended, Listen, Operation, Park, ScriptCall, Step, proceed

if TYPE_CHECKING:
    from types import TracebackType

    from numpy.typing import NDArray

    from cordwood.settings import Settings

_T = TypeVar("_T")


class Client:
    """Puts jobs onto queues and reads their results; one may be shared by threads.

    `url` is the server's (`redis://`, `rediss://`, `unix://`); without one it comes from `settings`, by default those
    of the environment: `CORDWOOD_REDIS_URL`, or the embedded server that runs in `data_dir`. `queue` is where jobs go
    if a call names no other. Every method may raise ServerUnavailable.
    """

    def __init__(self, url: str | None = None, *, queue: str = "embed", settings: Settings | None = None) -> None:
        chosen = load_settings() if settings is None else settings
        self._url = choose_url(url, chosen)
        self._core = Core(chosen, queue, time.monotonic)
        self._redis = connection.connect(self._url)
        self._hasty = connection.connect(self._url, HASTY)
        self._readers: dict[tuple[int, str], DoneThread] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End its connections and threads. Jobs are not touched; waits of other threads end with CordwoodError."""
        self._core.close()
        for (process, _), reader in list(self._readers.items()):
            if process == os.getpid():
                reader.close()
        self._readers.clear()
        self._redis.close()
        self._hasty.close()

    def submit(
        self,
        work: Work,
        *,
        job_id: str | None = None,
        queue: str | None = None,
        admission_control: bool = False,
        **options: Unpack[JobOptions],
    ) -> str:
        """Submit one job and return its ID; the same ID with the same contents again is the same job.

        Raises InvalidInput or PayloadTooLarge before anything is sent; JobConflict for an ID that has other
        contents; QueueFull or ServerFull, and then the job was not accepted. With `admission_control` also
        DeadlineUnmeetable, before anything is sent, if its deadline is sooner than it can be done.
        """
        job = as_job(work, job_id, options)
        return self._perform(self._core.submit(queue, [job], admission_control, numbered=False))[0]

    def submit_many(
        self,
        works: Iterable[Work],
        *,
        queue: str | None = None,
        admission_control: bool = False,
        **options: Unpack[JobOptions],
    ) -> list[str]:
        """Submit any number of jobs in as few calls as needed, and return their IDs in order.

        Nothing is sent before all are checked. Raises what `submit` raises; after a refusal the error's
        `submissions` says of each job whether it was accepted.
        """
        return self._perform(self._core.submit(queue, as_jobs(works, options), admission_control))

    def get(self, job_id: str, *, queue: str | None = None) -> JobRecord:
        """Return a job's record as it is now, without waiting; raise JobNotFound if there is none."""
        record = self._perform(self._core.look(queue, [job_id]))[0]
        if record is None:
            raise JobNotFound(job_id, f"job {job_id} is not known: never submitted, expired or wiped")
        return record

    def result(self, job_id: str, *, queue: str | None = None) -> Outcome | None:
        """Return how a job ended, without waiting, or None while it has not."""
        return read_outcome(job_id, self._perform(self._core.look(queue, [job_id]))[0])

    def wait(self, job_id: str, *, timeout_s: float | None = None, queue: str | None = None) -> Result:
        """Wait for a job and return its result, or raise the JobError that says how else it ended.

        With `timeout_s=None` it waits for as long as it takes (Ctrl-C ends it), with 0 it looks once. Raises
        WaitTimeout when the time is over. A server that goes away meanwhile does not end the wait.
        """
        return succeeded(self.wait_many([job_id], timeout_s=timeout_s, queue=queue)[0])

    def wait_many(
        self, job_ids: Iterable[str], *, timeout_s: float | None = None, queue: str | None = None
    ) -> list[Outcome]:
        """Wait for jobs and return a Result or a JobError for each, in the order of `job_ids`.

        Raises WaitTimeout if some have no outcome in time; its `job_ids` names them, and the others can be had at
        once by waiting for them again.
        """
        return self._perform(self._core.wait_many(queue, job_ids, timeout_s, Event()))

    def as_completed(
        self, job_ids: Iterable[str], *, timeout_s: float | None = None, queue: str | None = None
    ) -> Generator[Outcome, None, None]:
        """Yield a Result or a JobError for each job, in the order of their ends; raise WaitTimeout as `wait_many` does.

        The time runs from the first value asked for. Left half way it leaves nothing behind.
        """
        with self._core.wait(queue, job_ids, timeout_s, Event()) as wait:
            while wait.pending:
                yield from self._perform(wait.next_outcomes()).values()

    def cancel(self, job_ids: str | Iterable[str], *, queue: str | None = None) -> Mapping[str, str]:
        """End jobs as cancelled, whoever holds them, and return the state that each has now.

        That is `cancelled`, another final state if the job had ended before, or `missing`.
        """
        ids = [job_ids] if isinstance(job_ids, str) else list(job_ids)
        return dict(zip(ids, self._perform(self._core.cancel(queue, ids)), strict=True))

    def embed(
        self,
        texts: Sequence[str],
        *,
        timeout_s: float | None = None,
        queue: str | None = None,
        **options: Unpack[JobOptions],
    ) -> NDArray[Any]:
        """Return the vectors of the texts, shape (len(texts), dim), float32, in order.

        The texts travel as jobs of up to 32. Raises what `submit_many` and `wait` raise; the first job that failed
        decides.
        """
        return self._perform(self._core.embed(queue, texts, timeout_s, Event(), options))

    def _perform(self, operation: Operation[_T]) -> _T:
        """Run an operation: perform each step that it yields, and give it the answer or our own error."""
        answer = Answer()
        with closing(operation):
            while not isinstance(following := proceed(operation, answer), Ended):
                answer = self._answer(following)
            return following.value

    def _answer(self, step: Step) -> Answer:
        try:
            return Answer(self._perform_step(step))
        except CordwoodError as error:
            return Answer(error=error)

    def _perform_step(self, step: Step) -> Any:
        self._core.check_open()
        match step:
            case Commands(commands, patient):
                redis = self._redis if patient else self._hasty
                with connection.translated_errors(), redis.pipeline(transaction=False) as pipeline:
                    for command in commands:
                        pipeline.execute_command(*command)
                    return pipeline.execute()
            case ScriptCall():
                with connection.translated_errors():
                    return connection.run_script(self._redis if step.patient else self._hasty, step)
            case Listen(keys):
                self._reader(keys.queue).listen()
            case Park(ticket, timeout_s):
                return _wait_for(ticket.signal, timeout_s)
            case _:
                time.sleep(step.pause_s)
        return None

    def _reader(self, queue: str) -> DoneThread:
        # A forked child has the objects of its parent's threads, but not the threads.
        place = (os.getpid(), queue)
        if place not in self._readers:
            keys = self._core.keys(queue)
            reader = DoneThread(self._url, keys, self._core.context.done_shard, self._core.table(keys))
            self._readers.setdefault(place, reader)
        return self._readers[place]


def _wait_for(signal: object, timeout_s: float) -> bool:
    if not isinstance(signal, Event):
        raise TypeError("a Client waits for events of threads")
    woken = signal.wait(timeout_s)
    signal.clear()
    return woken


def choose_url(url: str | None, chosen: Settings) -> str:
    """Return the server's URL: the one given, else that of the settings; InvalidInput if it would be misread."""
    if url is None:
        return resolve_url(chosen)
    try:
        check_url(url)
    except ValueError as error:
        raise InvalidInput(f"url {masked_url(url)} {error}") from None
    return url


def load_settings() -> Settings:
    """Return the settings of the environment."""
    return settings.load(None, os.environ, {})
