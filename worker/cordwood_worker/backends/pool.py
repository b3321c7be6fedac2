"""A pool of staging buffers: what a batch is copied into on its way to the device, and out of it on its way back."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from math import prod
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from numpy.typing import NDArray

SMALLEST_BYTES: Final = 4096
DEFAULT_MAX_BYTES: Final = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """What a pool did so far: leases served from it and not, bytes it has, had at most, and has on loan."""

    hits: int
    misses: int
    bytes: int
    high_water_bytes: int
    leased_bytes: int

    @property
    def hit_rate(self) -> float:
        """The share of leases that allocated nothing, 1.0 if there was none."""
        return self.hits / (self.hits + self.misses) if self.hits + self.misses else 1.0


def size_class(count: int) -> int:
    """Return the size in bytes of the buffer for `count` bytes: 4, 5, 6 or 7 times a power of two, at least 4 KiB.

    At most a quarter of a buffer is more than was asked for.
    """
    if count <= SMALLEST_BYTES:
        return SMALLEST_BYTES
    step: int = 1 << ((count - 1).bit_length() - 3)
    return -(-count // step) * step


class BufferPool:
    """Host memory by size class, pinned if it is for a GPU; any thread may lease and return.

    A lease takes the smallest free buffer that is large enough, so that a pool that has served its largest batch serves
    every smaller one without allocating. It has at most `max_bytes`: beyond that it gives up free buffers first, and
    then lends memory that it does not keep. A lease must be returned exactly once.
    """

    def __init__(self, max_bytes: int = DEFAULT_MAX_BYTES, *, pinned: bool = False) -> None:
        self._max_bytes = max_bytes
        self._pinned = pinned
        self._lock = Lock()
        self._free: list[tuple[int, int, Any]] = []
        self._made = 0
        self._ranges: dict[int, int] = {}
        self._hits = self._misses = 0
        self._bytes = self._leased_bytes = self._high_water_bytes = 0

    def lease(self, shape: Sequence[int], dtype: Any) -> Lease:
        """Return a tensor of this shape and torch dtype, its contents undefined; a context manager that returns it."""
        count = prod(shape) * int(dtype.itemsize)
        wanted = size_class(count)
        with self._lock:
            number, buffer = self._take(wanted) or self._make(wanted)
            self._leased_bytes += len(buffer)
        tensor = buffer[:count].view(dtype).view(tuple(shape))
        return Lease(self, number, buffer, tensor)

    def statistics(self) -> PoolStatistics:
        """Return the numbers so far."""
        with self._lock:
            return PoolStatistics(self._hits, self._misses, self._bytes, self._high_water_bytes, self._leased_bytes)

    def clear(self) -> None:
        """Give up all free buffers."""
        with self._lock:
            while self._free:
                self._drop_smallest()

    def owns(self, pointer: int) -> bool:
        """Whether an address (`tensor.data_ptr()`) lies in memory of this pool."""
        with self._lock:
            return any(start <= pointer < start + size for start, size in self._ranges.items())

    def give_back(self, number: int, buffer: Any) -> None:
        """Take a buffer back; only its lease calls this."""
        with self._lock:
            self._leased_bytes -= len(buffer)
            if int(buffer.data_ptr()) in self._ranges:
                insort(self._free, (len(buffer), number, buffer))

    def _drop_smallest(self) -> None:
        size, _, dropped = self._free.pop(0)
        del self._ranges[int(dropped.data_ptr())]
        self._bytes -= size

    def _take(self, wanted: int) -> tuple[int, Any] | None:
        at = bisect_left(self._free, (wanted,))
        if at == len(self._free):
            return None
        self._hits += 1
        _, number, buffer = self._free.pop(at)
        return number, buffer

    def _make(self, wanted: int) -> tuple[int, Any]:
        """Allocate a buffer; number 0 stands for one that the pool has no room to keep."""
        import torch

        self._misses += 1
        while self._free and self._bytes + wanted > self._max_bytes:
            self._drop_smallest()
        buffer = torch.empty(wanted, dtype=torch.uint8, pin_memory=self._pinned)
        if self._bytes + wanted > self._max_bytes:
            return 0, buffer
        self._made += 1
        self._bytes += wanted
        self._high_water_bytes = max(self._high_water_bytes, self._bytes)
        self._ranges[int(buffer.data_ptr())] = wanted
        return self._made, buffer


class Lease:
    """A buffer on loan: `tensor` has the shape and dtype that were asked for, and `array` is the same memory."""

    __slots__ = ("_buffer", "_number", "_pool", "tensor")

    def __init__(self, pool: BufferPool, number: int, buffer: Any, tensor: Any) -> None:
        self._pool: BufferPool | None = pool
        self._number = number
        self._buffer = buffer
        self.tensor: Any = tensor

    @property
    def array(self) -> NDArray[Any]:
        """The tensor as a numpy array, for the dtypes that numpy has."""
        view: NDArray[Any] = self.tensor.numpy()
        return view

    def release(self) -> None:
        """Return the buffer; RuntimeError if it was returned before."""
        pool, self._pool = self._pool, None
        if pool is None:
            raise RuntimeError("a lease was returned twice")
        buffer, self._buffer, self.tensor = self._buffer, None, None
        pool.give_back(self._number, buffer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()
