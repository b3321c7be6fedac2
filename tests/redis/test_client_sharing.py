import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from cordwood import CordwoodError
from cordwood_worker.testing import fault_vector
from tests.clients import opened
from tests.finishing import HandWorker
from tests.waiting import wait_until

FORKING = """
import os, sys, threading, time
from cordwood import Client
from cordwood.settings import Settings
client = Client(sys.argv[1], settings=Settings())
parents = client.submit("held")
waits = threading.Thread(target=lambda: print("parent", client.wait(parents, timeout_s=30).job_id == parents))
waits.start()
mine = client.submit("before")
assert client.wait(mine, timeout_s=30).job_id == mine
sys.stdout.flush()
pid = os.fork()
if pid == 0:
    began = time.monotonic()
    ids = client.submit_many([f"child {n}" for n in range(20)])
    assert [outcome.job_id for outcome in client.wait_many(ids, timeout_s=30)] == ids
    assert [client.wait(client.submit("more"), timeout_s=30).attempt for _ in range(3)] == [1, 1, 1]
    # Sooner than a wait that hears nothing looks by itself.
    assert time.monotonic() - began < 4
    client.close()
    print("child True", flush=True)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
ids = client.submit_many([f"parent {n}" for n in range(20)])
assert len(client.wait_many(ids, timeout_s=30)) == 20
client.submit("let go")
waits.join()
client.close()
"""


@pytest.fixture
def worker(redis_url: str) -> Iterator[HandWorker]:
    """A worker by hand."""
    with HandWorker(redis_url) as made:
        wait_until(lambda: readers(made) == 0, description="clients of earlier tests have stopped reading")
        yield made


def readers(worker: HandWorker) -> int:
    """How many connections read a `done` stream just now."""
    clients: Any = worker.redis.client_list()
    return sum(client["cmd"] == "xread" and "b" in client["flags"] for client in clients)


def test_many_threads_share_a_client_and_each_gets_its_own_results(redis_url: str, worker: HandWorker) -> None:
    """Sixteen threads, one reading connection."""
    most_readers = 0

    def use(number: int) -> bool:
        for turn in range(10):
            text = f"text {number} {turn}"
            np.testing.assert_array_equal(client.wait(client.submit(text), timeout_s=20).vector, fault_vector(text))
        vectors = client.embed([f"{number} a", f"{number} b"], timeout_s=20)
        return bool(np.array_equal(vectors[1], fault_vector(f"{number} b")))

    with opened("blocking", redis_url) as client, worker.serving(), ThreadPoolExecutor(16) as pool:
        uses = [pool.submit(use, number) for number in range(16)]
        while not all(item.done() for item in uses):
            most_readers = max(most_readers, readers(worker))
        assert all(item.result() for item in uses)
    assert most_readers == 1


def test_a_client_lives_on_in_both_processes_after_a_fork(redis_url: str, worker: HandWorker) -> None:
    """A child of a process whose threads wait shares neither sockets nor locks nor waits with it."""
    held: list[Any] = []

    def end(attempts: list[Any]) -> None:
        """Hold the job of the waiting thread for as long as the child lives."""
        held.extend(attempt for attempt in attempts if b"held" in attempt.payload)
        worker.finish([attempt for attempt in attempts if b"held" not in attempt.payload])
        if any(b"let go" in attempt.payload for attempt in attempts):
            worker.finish(held)

    with worker.serving(end):
        command = [sys.executable, "-c", FORKING, redis_url]
        finished = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert (finished.returncode, finished.stderr) == (0, "")
    assert sorted(finished.stdout.split("\n")) == ["", "child True", "parent True"]


def test_a_closed_client_ends_the_waits_of_other_threads_and_is_not_used_again(
    redis_url: str, worker: HandWorker
) -> None:
    """It does not connect anew behind its user's back; closing takes no time and closing twice is harmless."""
    with opened("blocking", redis_url) as client, ThreadPoolExecutor(1) as pool:
        job_id = client.submit("a")
        waiting = pool.submit(client.wait, job_id)
        wait_until(lambda: readers(worker) == 1, description="the wait is parked")
        client.close()
        with pytest.raises(CordwoodError, match="closed"):
            waiting.result(2)
        for call in (client.submit, client.get, client.wait, client.cancel):
            with pytest.raises(CordwoodError, match="the client was closed"):
                call("a")
        client.close()
        wait_until(lambda: readers(worker) == 0, description="the reading connection is closed")
    assert not any(thread.name == "cordwood-done" for thread in threading.enumerate())
    worker.finish(worker.take_exactly(1))
