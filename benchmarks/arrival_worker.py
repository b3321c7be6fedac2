"""A rival: a worker as one writes it in an afternoon, which encodes what it reads and does not look further.

`python -m benchmarks.arrival_worker URL DEVICE SIZE:PRECISION …` has a thread for each kind, of which a benchmark uses
one at a time. It reads up to SIZE entries of the kind's stream, encodes their field `text` in one call, stores each
vector's bytes under its entry's ID, and acknowledges them.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from threading import Thread
from typing import Any, Final

import redis

from benchmarks.plain_encode import Library

GROUP: Final = "workers"
NAME: Final = "worker"
BLOCK_MS: Final = 1000
WARMING: Final = "A text that warms up."


@dataclass(frozen=True, slots=True)
class Kind:
    """How many texts it takes at once, and in which precision it encodes them."""

    size: int
    precision: str

    def __str__(self) -> str:
        return f"{self.size}:{self.precision}"

    @classmethod
    def parse(cls, text: str) -> Kind:
        """Read what `str` writes."""
        size, _, precision = text.partition(":")
        return cls(int(size), precision)

    @property
    def stream(self) -> str:
        """The key of the texts."""
        return f"arrival:{self}"

    @property
    def vectors(self) -> str:
        """The key of the hash of vectors."""
        return f"arrival:{self}:vectors"

    @property
    def ready(self) -> str:
        """The key that is there once the model is loaded and has run."""
        return f"arrival:{self}:ready"


def serve(url: str, kind: Kind, library: Library) -> None:
    """Work until the process is told to end."""
    client: Any = redis.Redis.from_url(url)  # its replies have loose types
    library.encode([WARMING] * kind.size)
    client.xgroup_create(kind.stream, GROUP, id="0", mkstream=True)
    client.set(kind.ready, 1)
    while True:
        replies = client.xreadgroup(GROUP, NAME, {kind.stream: ">"}, count=kind.size, block=BLOCK_MS)
        for _, entries in replies or ():
            vectors = library.encode([fields[b"text"].decode() for _, fields in entries])
            stored = {entry: vector.tobytes() for (entry, _), vector in zip(entries, vectors, strict=True)}
            client.hset(kind.vectors, mapping=stored)
            client.xack(kind.stream, GROUP, *stored)


def main() -> None:
    """Read the arguments, load each precision once, and work."""
    url, device, *names = sys.argv[1:]
    kinds = [Kind.parse(name) for name in names]
    libraries = {kind.precision: Library(kind.precision, device) for kind in kinds}
    for kind in kinds:
        Thread(target=serve, args=(url, kind, libraries[kind.precision]), name=str(kind)).start()


if __name__ == "__main__":
    main()
