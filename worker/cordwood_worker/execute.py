"""Run a batch, whatever the device makes of it: each row ends in its own output or its own failure."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

import numpy as np

from cordwood_worker.backends import DeviceBroken, DeviceOutOfMemory
from cordwood_worker.batch import Batch, Row, RowFailure, RowOutput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from cordwood_worker.backends import Backend

RowOutcome = RowOutput | RowFailure
Outputs = Callable[[], object]
"""What waits for the outputs of a run, or raises what the run raised."""

OUT_OF_MEMORY: Final = "out-of-memory"
NON_FINITE: Final = "non-finite"
BAD_BACKEND: Final = "bad-backend"
MAX_MESSAGE_CHARACTERS: Final = 500
_MAX_RAW_CHARACTERS: Final = 4 * MAX_MESSAGE_CHARACTERS


def execute(
    backend: Backend, batch: Batch, begun: Outputs | None = None, note_run: Callable[[Batch, bool], None] | None = None
) -> list[RowOutcome]:
    """Run a batch and return each row's outcome, in the order of the rows.

    `begun` waits for the outputs of a first run of the whole batch that the device was given already. `note_run` is
    told of each run whether it fitted the device's memory; a run that failed otherwise does not tell.

    A batch that raises or runs out of memory is run again in halves, down to single rows. A single row fails as
    `out-of-memory` at once, with the exception's own type and message once it has raised alone twice, and as
    `non-finite` if its output has NaN or infinity although it ran alone. Outputs of another shape or dtype than
    float32 (rows, spec.dim) are the backend's fault and belong to nobody: every row of that run fails as
    `bad-backend`, which is transient.

    At most 3n - 1 runs for n rows: the halves are a tree of at most 2n - 1 runs, and each row may run once more. One
    bad row costs at most 2 * ceil(log2(n)) + 2 runs.

    Raises DeviceBroken at once and as it is; nothing may be stored or acknowledged then.
    """
    return _Execution(backend, note_run).run(batch.rows, begun) if batch.rows else []


@dataclass(frozen=True, slots=True)
class _Fault:
    """Why a run gave no outputs."""

    code: str
    message: str


class _Execution:
    """The runs of one batch."""

    def __init__(self, backend: Backend, note_run: Callable[[Batch, bool], None] | None) -> None:
        self._backend = backend
        self._note_run = note_run

    def run(self, rows: Sequence[Row], begun: Outputs | None = None) -> list[RowOutcome]:
        """Run rows together, and where that fails in halves."""
        answer = self._attempt(rows, begun)
        alone = len(rows) == 1
        if alone and isinstance(answer, _Fault) and answer.code not in (OUT_OF_MEMORY, BAD_BACKEND):
            answer = self._attempt(rows)
        if not isinstance(answer, _Fault):
            return self._assign(rows, answer)
        if alone or answer.code == BAD_BACKEND:
            transient = answer.code == BAD_BACKEND
            return [RowFailure(row, answer.code, answer.message, transient) for row in rows]
        middle = (len(rows) + 1) // 2
        return self.run(rows[:middle]) + self.run(rows[middle:])

    def _assign(self, rows: Sequence[Row], values: NDArray[np.float32]) -> list[RowOutcome]:
        """Give each row its own line of the outputs; lines that are not finite are computed again alone, then failed.

        Invariant 4 is kept here: this is the one place where outputs meet rows, by position, and `_attempt` has checked
        that there are exactly as many lines as rows and copied them out of the backend's buffers.
        """
        outcomes: list[RowOutcome] = []
        finite = cast("NDArray[np.bool_]", np.isfinite(values).all(axis=1)).tolist()
        for row, line, is_finite in zip(rows, values, finite, strict=True):
            if is_finite:
                outcomes.append(RowOutput(row, line))
            elif len(rows) == 1:
                outcomes.append(RowFailure(row, NON_FINITE, "the model's output has NaN or infinity"))
            else:
                outcomes.extend(self.run([row]))
        return outcomes

    def _attempt(self, rows: Sequence[Row], begun: Outputs | None = None) -> NDArray[np.float32] | _Fault:
        """Run rows once; the outputs are a copy, so that no later run can write over them."""
        batch = Batch(tuple(rows))
        try:
            values: object = self._backend.run(batch) if begun is None else begun()
        except DeviceBroken:
            raise
        except (DeviceOutOfMemory, MemoryError) as error:
            let_go(error)
            self._note(batch, fits=False)
            what = f"{len(rows)} rows of up to {batch.longest} tokens do not fit the device's memory"
            return _Fault(OUT_OF_MEMORY, what)
        except Exception as error:  # noqa: BLE001 - the batch boundary: whatever a model raises is a row's fault
            let_go(error)
            return _Fault(type(error).__name__, describe(error))
        self._note(batch, fits=True)
        expected = (len(rows), self._backend.spec.dim)
        if not isinstance(values, np.ndarray) or values.shape != expected or values.dtype != np.float32:
            return _Fault(BAD_BACKEND, f"the backend returned {_description(values)}, not float32 of shape {expected}")
        return np.array(values, dtype=np.float32, order="C")

    def _note(self, batch: Batch, *, fits: bool) -> None:
        if self._note_run is not None:
            self._note_run(batch, fits)


def _description(values: object) -> str:
    if isinstance(values, np.ndarray):
        return f"{values.dtype} of shape {values.shape}"
    return f"a {type(values).__name__}"


def let_go(error: BaseException) -> None:
    """Clear the variables of the calls that an exception, its causes and its contexts came through.

    Among them are the tensors of the run that failed. An exception that is raised from another is in a cycle with
    its own calls, so they would keep the device's memory until the cycles are collected, while the halves run.
    """
    known: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        one = pending.pop()
        if one is None or id(one) in known:
            continue
        known.add(id(one))
        traceback.clear_frames(one.__traceback__)
        pending += [one.__cause__, one.__context__]


def describe(error: Exception) -> str:
    """Return an exception's text on one line, without control characters, cut to `MAX_MESSAGE_CHARACTERS`."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an exception that cannot even say its text must not cost the batch
        return ""
    line = " ".join(text[:_MAX_RAW_CHARACTERS].split())
    return "".join(character for character in line if character.isprintable())[:MAX_MESSAGE_CHARACTERS]
