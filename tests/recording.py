"""A fault backend that writes down each batch it begins, for tests that ask when batches left and what was in them."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cordwood_worker.testing import FaultBackend, FaultOptions

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from cordwood.settings import QueueSettings
    from cordwood_worker.batch import Batch

MODEL: Final = "python:tests.recording:recording_backend"


@dataclass(frozen=True, slots=True)
class BatchNote:
    """One batch: its job IDs, when it began, and when its oldest job came to the worker, both in monotonic seconds."""

    job_ids: list[str]
    began_s: float
    oldest_s: float

    @property
    def rows(self) -> int:
        """Its number of rows."""
        return len(self.job_ids)

    @property
    def waited_s(self) -> float:
        """How long its oldest job had waited."""
        return self.began_s - self.oldest_s


class RecordingBackend(FaultBackend):
    """Appends a line to a file for each batch, then does what a fault backend does."""

    def __init__(self, notes: Path, options: FaultOptions) -> None:
        super().__init__(options)
        self._notes = notes

    def run(self, batch: Batch) -> NDArray[np.float32]:
        """Note the batch, then run it."""
        note = {
            "job_ids": [row.job_id for row in batch.rows],
            "began_s": time.monotonic(),
            "oldest_s": min(row.arrived_s for row in batch.rows),
        }
        with self._notes.open("a", encoding="utf-8") as notes:
            notes.write(json.dumps(note) + "\n")
        return super().run(batch)


def recording_backend(queue: QueueSettings) -> RecordingBackend:
    """Make the backend; the option `notes` names its file, the others are those of a fault backend."""
    options = dict(queue.options)
    return RecordingBackend(Path(str(options.pop("notes"))), FaultOptions.read(options))


def read_notes(notes: Path) -> list[BatchNote]:
    """Return the batches that were begun, in order."""
    return [BatchNote(**json.loads(line)) for line in notes.read_text("utf-8").splitlines()]
