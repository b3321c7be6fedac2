"""Buffers go out and come back exactly once, and a pool that has grown allocates nothing more."""

from __future__ import annotations

from threading import Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood_worker.backends.pool import SMALLEST_BYTES, BufferPool, size_class


@pytest.fixture
def torch() -> Any:
    """The library, imported when a test wants it."""
    import torch

    return torch


@given(st.integers(min_value=1, max_value=1 << 40))
def test_a_size_class_is_at_most_a_quarter_too_large(count: int) -> None:
    """And at least as large as what was asked for."""
    assert count <= size_class(count) <= max(SMALLEST_BYTES, 1.25 * count)


def test_a_returned_buffer_serves_the_next_lease_of_any_smaller_size(torch: Any) -> None:
    """One miss for the first, hits from then on."""
    pool = BufferPool()
    with pool.lease((100, 100), torch.float32) as lease:
        address = lease.tensor.data_ptr()
        assert pool.owns(address)
    for shape in [(100, 100), (3,), (1, 9_999)]:
        with pool.lease(shape, torch.float32) as lease:
            assert lease.tensor.data_ptr() == address
            assert tuple(lease.tensor.shape) == shape
    numbers = pool.statistics()
    assert (numbers.hits, numbers.misses, numbers.leased_bytes) == (3, 1, 0)
    assert numbers.hit_rate == 0.75


def test_two_leases_at_once_share_nothing(torch: Any) -> None:
    """What is written to one is not seen in the other."""
    pool = BufferPool()
    with pool.lease((8,), torch.int64) as one, pool.lease((8,), torch.int64) as two:
        one.array[:] = 1
        two.array[:] = 2
        assert one.tensor.tolist() == [1] * 8


def test_a_lease_is_returned_once_only(torch: Any) -> None:
    """A second return would lend the same memory to two batches."""
    lease = BufferPool().lease((1,), torch.int64)
    lease.release()
    with pytest.raises(RuntimeError, match="twice"):
        lease.release()


def test_a_lease_comes_back_when_its_block_raises(torch: Any) -> None:
    """An error costs no buffer."""
    pool = BufferPool()
    with pytest.raises(ValueError, match="x"), pool.lease((1,), torch.int64):
        raise ValueError("x")
    assert pool.statistics().leased_bytes == 0


def test_a_pool_never_keeps_more_than_its_limit(torch: Any) -> None:
    """It gives up free buffers first, and lends memory that it does not keep when all are out."""
    pool = BufferPool(max_bytes=3 * SMALLEST_BYTES)
    with pool.lease((SMALLEST_BYTES,), torch.uint8), pool.lease((SMALLEST_BYTES,), torch.uint8):
        pass
    with pool.lease((2 * SMALLEST_BYTES,), torch.uint8) as large:
        assert pool.owns(large.tensor.data_ptr())
        with pool.lease((2 * SMALLEST_BYTES,), torch.uint8) as extra:
            assert not pool.owns(extra.tensor.data_ptr())
        assert pool.statistics().bytes <= 3 * SMALLEST_BYTES
    assert pool.statistics().leased_bytes == 0
    pool.clear()
    assert pool.statistics().bytes == 0


def test_threads_can_lease_at_the_same_time(torch: Any) -> None:
    """Each sees its own numbers in its buffer."""
    pool = BufferPool()
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(300):
            with pool.lease((512,), torch.int64) as lease:
                lease.array[:] = number
                if (lease.array != number).any():
                    wrong.append(number)

    threads = [Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert pool.statistics().leased_bytes == 0
    assert pool.statistics().misses <= 4
