"""Cases C03 and C20 at the size that they name, with the real model in a real worker."""

from __future__ import annotations

from time import monotonic
from typing import Final

import pytest

from cordwood import Client
from cordwood.result import Result
from cordwood.settings import Settings
from tests.fleet import PATIENT, QUEUE, Fleet
from tests.models import MINILM
from tests.process_usage import cpu_share, forget_peak, peak_bytes, resident_bytes
from tests.waiting import wait_until

MB: Final = 1 << 20
CHARACTERS: Final = 1_000_000
LONG: Final = ["." * CHARACTERS, "a " * (CHARACTERS // 2), "木" * CHARACTERS, "x" * CHARACTERS]
"""The last one is a single word, which the tokenizer has to read to its end; it is unknown, and so not too long."""


@pytest.mark.timeout(400)
def test_c03_20_texts_of_a_million_characters_among_100_short_ones(fleet: Fleet) -> None:
    """All within 120 s, 90 of the short ones within 30 s though the long ones came first, and the memory comes back.

    A million CJK characters are 3 MB of UTF-8: the limit on payloads is raised for them.
    """
    settings = Settings(max_payload_bytes=4 * MB)
    fleet.configure({**PATIENT, "max_payload_bytes": settings.max_payload_bytes}, model=MINILM)
    worker = fleet.start()[0]
    with Client(fleet.url, queue=QUEUE, settings=settings) as client:
        client.wait(client.submit("first"), timeout_s=60)
        before = resident_bytes(worker.pid)
        forget_peak(worker.pid)
        began_s = monotonic()
        long = client.submit_many(LONG * 5)
        short = client.submit_many([f"short text {number}" for number in range(100)])
        wait_until(
            lambda: sum(client.result(job_id) is not None for job_id in short) >= 90,
            description="90 short texts are done",
            timeout_s=30,
        )
        outcomes = client.wait_many([*long, *short], timeout_s=120 - (monotonic() - began_s))
    results = [outcome for outcome in outcomes if isinstance(outcome, Result)]
    assert len(results) == 120
    assert [bool(result.outputs.truncated) for result in results] == [True, True, True, False] * 5 + [False] * 100
    assert peak_bytes(worker.pid) - before < 1500 * MB
    wait_until(
        lambda: resident_bytes(worker.pid) - before < 300 * MB, description="the memory has come back", timeout_s=20
    )
    assert cpu_share(worker.pid, 5.0) < 0.2


@pytest.mark.timeout(200)
def test_c20_2000_texts_with_the_tokenizers_threads_switched_on(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """In batches of 64, within 60 s."""
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    fleet.configure({**PATIENT, "max_batch_rows": 64}, model=MINILM)
    fleet.start()
    outcomes = fleet.client.wait_many(
        fleet.client.submit_many([f"text number {number} of many" for number in range(2_000)]), timeout_s=60
    )
    assert sum(isinstance(outcome, Result) for outcome in outcomes) == 2_000
