"""A rival: a worker as one writes it in an afternoon, which encodes what it reads and does not look further.

`python -m benchmarks.arrival_worker URL STREAM COUNT PRECISION DEVICE`. It reads up to COUNT entries with a field
`text`, encodes them in one call, stores each vector's bytes under its entry's ID in the hash `STREAM:vectors`, and
acknowledges them. The key `STREAM:ready` appears when it has loaded its model and run it once.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import redis

from benchmarks.library import Library

GROUP: Final = "workers"
NAME: Final = "worker"
BLOCK_MS: Final = 1000


def serve(url: str, stream: str, count: int, library: Library) -> None:
    """Work until the process is told to end."""
    client: Any = redis.Redis.from_url(url)  # its replies have loose types
    client.xgroup_create(stream, GROUP, id="0", mkstream=True)
    client.set(f"{stream}:ready", 1)
    while True:
        replies = client.xreadgroup(GROUP, NAME, {stream: ">"}, count=count, block=BLOCK_MS)
        for _, entries in replies or ():
            vectors = library.encode([fields[b"text"].decode() for _, fields in entries])
            stored = {entry: vector.tobytes() for (entry, _), vector in zip(entries, vectors, strict=True)}
            client.hset(f"{stream}:vectors", mapping=stored)
            client.xack(stream, GROUP, *stored)


def main() -> None:
    """Read the arguments and work."""
    url, stream, count, precision, device = sys.argv[1:]
    library = Library(precision, device)
    library.encode(["A text that warms up."] * int(count))
    serve(url, stream, int(count), library)


if __name__ == "__main__":
    main()
