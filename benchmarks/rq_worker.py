"""A rival: rq, used for embedding without much thought, one text a job.

`python -m benchmarks.rq_worker URL` runs rq's SimpleWorker, which does not fork, so that the model is
loaded once.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from redis import Redis
from rq import Queue, SimpleWorker

from benchmarks.library import Library

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

QUEUE: Final = "naive"
TASK: Final = "benchmarks.rq_worker.embed"


@cache
def library(precision: str, device: str) -> Library:
    """Return the model, loaded at the first job."""
    return Library(precision, device)


def embed(text: str, precision: str, device: str) -> NDArray[np.float32]:
    """The job."""
    vectors: NDArray[np.float32] = library(precision, device).encode([text])[0]
    return vectors


def main() -> None:
    """Read the argument and work until the process is told to end."""
    connection: Any = Redis.from_url(sys.argv[1])
    SimpleWorker([Queue(QUEUE, connection=connection)], connection=connection).work(logging_level="WARNING")


if __name__ == "__main__":
    main()
