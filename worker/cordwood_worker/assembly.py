"""Putting the rows of each job together again: a result is made of its own job's rows alone, in order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from cordwood.errors import CodecError
from cordwood.result import Outputs, encode_outputs
from cordwood_worker.batch import RowFailure, RowOutput, Tokens
from cordwood_worker.broker.attempts import Done, Fault
from cordwood_worker.vectors import as_asked

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from cordwood.job import Payload
    from cordwood_worker.backends import Spec
    from cordwood_worker.entry import Attempt


@dataclass(slots=True)
class _Parts:
    attempt: Attempt
    payload: Payload
    tokens: Sequence[Tokens]
    values: dict[int, NDArray[np.float32]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Assembled:
    """The jobs that came to an end with some rows: done, failed by their own fault, or to be tried again."""

    done: list[Done]
    failed: list[Fault]
    retried: list[Fault]

    @property
    def attempts(self) -> list[Attempt]:
        """All of them."""
        faults = (*self.failed, *self.retried)
        return [*(job.attempt for job in self.done), *(fault.attempt for fault in faults)]


class Assembly:
    """The jobs whose rows are on their way. One thread expects, another one adds.

    It keeps invariant 4 on the way back: rows come with the job ID and the position that they left with.
    """

    def __init__(self, spec: Spec, max_result_bytes: int) -> None:
        self._spec = spec
        self._max_result_bytes = max_result_bytes
        self._lock = Lock()
        self._jobs: dict[str, _Parts] = {}

    def expect(self, attempt: Attempt, payload: Payload, tokens: Sequence[Tokens]) -> Attempt | None:
        """Begin a job with as many rows as `tokens`, and return the earlier attempt whose place it takes, if any."""
        with self._lock:
            earlier = self._jobs.get(attempt.job_id)
            self._jobs[attempt.job_id] = _Parts(attempt, payload, tokens)
            return earlier.attempt if earlier else None

    def add(self, rows: Iterable[RowOutput | RowFailure]) -> Assembled:
        """Take what rows came to, and return the jobs that are at their end with it."""
        ended = Assembled([], [], [])
        with self._lock:
            for item in rows:
                parts = self._jobs.get(item.row.job_id)
                if parts is None:
                    continue
                if isinstance(item, RowFailure):
                    self._fail(parts, item, ended)
                    continue
                parts.values[item.row.index] = item.values
                if len(parts.values) == len(parts.tokens):
                    self._complete(parts, ended)
        return ended

    def _fail(self, parts: _Parts, failure: RowFailure, ended: Assembled) -> None:
        del self._jobs[failure.row.job_id]
        where = f"input {failure.row.index}: " if len(parts.tokens) > 1 else ""
        fault = Fault(parts.attempt, failure.code, where + failure.message)
        (ended.retried if failure.transient else ended.failed).append(fault)

    def _complete(self, parts: _Parts, ended: Assembled) -> None:
        del self._jobs[parts.attempt.job_id]
        values = np.stack([parts.values[index] for index in range(len(parts.tokens))])
        outputs = Outputs(
            task=self._spec.task,
            values=as_asked(values, parts.payload.options, normalized=self._spec.normalized),
            tokens=tuple(len(item.ids) for item in parts.tokens),
            truncated=tuple(index for index, item in enumerate(parts.tokens) if item.truncated),
            model=self._spec.model,
            fingerprint=self._spec.fingerprint,
            precision=self._spec.precision,
            metadata=parts.payload.metadata,
        )
        try:
            ended.done.append(Done(parts.attempt, encode_outputs(outputs, max_bytes=self._max_result_bytes)))
        except CodecError as error:
            ended.failed.append(Fault(parts.attempt, "bad-result", str(error)))
