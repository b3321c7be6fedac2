"""Cases C03 and C20 at the size that they name, with the real model in a real worker."""

from __future__ import annotations

from pathlib import Path
from time import monotonic, sleep
from typing import Final

import pytest

from cordwood.result import Result
from tests.fleet import PATIENT, Fleet
from tests.models import MINILM
from tests.waiting import wait_until

MB: Final = 1 << 20
CPU_TICKS: Final = 100


def memory_bytes(pid: int) -> int:
    """The resident memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def cpu_s(pid: int) -> float:
    """The processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CPU_TICKS


@pytest.mark.timeout(400)
def test_c03_20_texts_of_a_million_characters_among_100_short_ones(fleet: Fleet) -> None:
    """All within 120 s, 90 of the short ones within 30 s, and the memory comes back; then the worker is idle.

    A million CJK characters are 3 MB of UTF-8: the limit on payloads is raised for them.
    """
    limit = {"max_payload_bytes": 4 * MB}
    fleet.configure({**PATIENT, **limit}, model=MINILM)
    worker = fleet.start()[0]
    fleet.client.wait(fleet.client.submit("first"), timeout_s=60)
    before = memory_bytes(worker.pid)
    kinds = ["." * 1_000_000, "a " * 500_000, "木" * 300_000]
    texts = [kinds[number % 3] if number % 6 == 0 else f"short text {number}" for number in range(120)]
    began_s = monotonic()
    ids = fleet.client.submit_many(texts)
    short = [job_id for job_id, text in zip(ids, texts, strict=True) if len(text) < 100]
    wait_until(
        lambda: sum(fleet.client.result(job_id) is not None for job_id in short) >= 90,
        description="90 short texts are done",
        timeout_s=30,
    )
    outcomes = fleet.client.wait_many(ids, timeout_s=120 - (monotonic() - began_s))
    assert sum(isinstance(outcome, Result) for outcome in outcomes) == 120
    assert memory_bytes(worker.pid) - before < 1500 * MB
    wait_until(
        lambda: memory_bytes(worker.pid) - before < 300 * MB, description="the memory has come back", timeout_s=20
    )
    used_s = cpu_s(worker.pid)
    sleep(5)  # what is measured is how little happens in this time
    assert cpu_s(worker.pid) - used_s < 1.0


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
