"""A rival: rq, used for embedding without much thought, one text a job.

`python -m benchmarks.rq_worker URL QUEUE` runs rq's SimpleWorker, which does not fork, so that the model is loaded
once.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Any

from redis import Redis
from rq import Queue, SimpleWorker

from benchmarks.plain_encode import Library

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@cache
def library(precision: str, device: str) -> Library:
    """Return the model, loaded at the first job."""
    return Library(precision, device)


def embed(text: str, precision: str, device: str) -> NDArray[np.float32]:
    """The job: one text, one call."""
    vector: NDArray[np.float32] = library(precision, device).encode([text])[0]
    return vector


def main() -> None:
    """Work until the process is told to end."""
    url, name = sys.argv[1:]
    connection: Any = Redis.from_url(url)
    SimpleWorker([Queue(name, connection=connection)], connection=connection).work(logging_level="WARNING")


if __name__ == "__main__":
    main()
