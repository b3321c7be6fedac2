"""Both clients behind one interface, so that a test of what they share runs with each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, cast

from cordwood import AsyncClient, Client
from cordwood.result import Outcome
from cordwood.settings import Settings

KINDS: Final = ("blocking", "async")


class DrivenAsyncClient:
    """An AsyncClient whose every call is run to its end; its event loop stands still between calls."""

    def __init__(self, url: str, settings: Settings, queue: str) -> None:
        self.inner = AsyncClient(url, settings=settings, queue=queue)
        self._runner = asyncio.Runner()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.inner, name)
        return lambda *args, **kwargs: self._runner.run(method(*args, **kwargs))

    def as_completed(self, job_ids: Iterable[str], **options: Any) -> Iterator[Outcome]:
        """Drive the iterator step by step, and close it with this one."""
        outcomes = cast("Any", self.inner.as_completed(job_ids, **options))

        async def next_one() -> Outcome | None:
            return await anext(outcomes, None)

        try:
            while (outcome := self._runner.run(next_one())) is not None:
                yield outcome
        finally:
            self._runner.run(outcomes.aclose())

    def close(self) -> None:
        """Close the client, then its loop."""
        self._runner.run(self.inner.close())
        self._runner.close()


@contextmanager
def opened(kind: str, url: str, *, queue: str = "embed", **changes: Any) -> Iterator[Client]:
    """A client of one of the `KINDS`, with these settings changed, closed at the end."""
    settings = Settings(**changes)
    if kind == "blocking":
        with Client(url, queue=queue, settings=settings) as client:
            yield client
        return
    driven = DrivenAsyncClient(url, settings, queue)
    try:
        yield cast("Client", driven)
    finally:
        driven.close()
