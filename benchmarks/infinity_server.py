"""The process in which infinity-emb runs, in an environment of its own: it needs older packages than Cordwood.

Run by its path, with nothing but infinity-emb to import: `python infinity_server.py FOLDER DEVICE DTYPE …`. On its
standard input the first line is the texts as a JSON list, every further line a dtype; it answers each of these with a
line: the seconds that embedding all texts took, all submitted in one call as its API has it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from importlib import import_module
from time import perf_counter
from typing import Any, TextIO

WARM_UP = 64


def open_engine(folder: str, device: str, dtype: str) -> Any:
    """Return an engine as its documentation makes one, with batches of 32, its default."""
    library: Any = import_module("infinity_emb")
    arguments = library.EngineArgs(
        model_name_or_path=folder,
        engine="torch",
        device=device,
        dtype=dtype,
        bettertransformer=False,
        model_warmup=False,
    )
    return library.AsyncEmbeddingEngine.from_args(arguments)


async def serve(folder: str, device: str, dtypes: list[str], answers: TextIO) -> None:
    """Answer until the input ends."""
    engines = {dtype: open_engine(folder, device, dtype) for dtype in dtypes}
    texts: list[str] = json.loads(sys.stdin.readline())
    for engine in engines.values():
        await engine.astart()
        await engine.embed(sentences=texts[:WARM_UP])
    print("ready", file=answers, flush=True)
    try:
        for line in sys.stdin:
            began_s = perf_counter()
            await engines[line.strip()].embed(sentences=texts)
            print(perf_counter() - began_s, file=answers, flush=True)
    finally:
        for engine in engines.values():
            await engine.astop()


def main() -> None:
    """Keep the standard output for answers alone: whatever a library prints goes to standard error."""
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        folder, device, *dtypes = sys.argv[1:]
        asyncio.run(serve(folder, device, dtypes, answers))


if __name__ == "__main__":
    main()
