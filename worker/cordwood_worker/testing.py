"""A backend for tests that needs no model: it answers at once, and fails on purpose when a text says so."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, fields
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cordwood.errors import SettingsError
from cordwood.options import DEFAULT_OPTIONS
from cordwood_worker.backends import DeviceOutOfMemory, Spec, WarmUp
from cordwood_worker.backends.faults import device_fault
from cordwood_worker.backends.tokeniser import single_text
from cordwood_worker.batch import Tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from cordwood.job import Input
    from cordwood.options import EmbedOptions
    from cordwood.settings import BatchBudget, QueueSettings
    from cordwood_worker.batch import Batch

BAD: Final = "BAD"
"""A text with it raises ValueError in every batch it is in."""
NAN: Final = "NAN"
"""A text with it comes out as a row of NaN."""
SLOW: Final = "SLOW"
"""A batch with such a text takes `slow_s` longer."""
KILL: Final = "KILL"
"""A text with it kills the process with SIGKILL."""
EXIT: Final = "EXIT"
"""A text with it ends the process with code 13, without any clean-up."""
BROKEN: Final = "BROKEN"
"""A text with it breaks the device: this batch and every later one raise DeviceBroken."""

EXIT_CODE: Final = 13
HOLD_POLL_S: Final = 0.005
DEFAULT_DIM: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultOptions:
    """The options of a queue that a fault backend serves; times in seconds.

    A batch takes `delay_s` + `per_row_s` × rows. `oom_cells` is the largest padded matrix (rows × longest) that fits
    the device, 0 for no limit. While a file `hold_file` exists, `run` waits, with the batch in hand.
    """

    dim: int = DEFAULT_DIM
    max_tokens: int = 256
    delay_s: float = 0.0
    per_row_s: float = 0.0
    slow_s: float = 0.5
    oom_cells: int = 0
    hold_file: str = ""

    @classmethod
    def read(cls, options: Mapping[str, Any]) -> FaultOptions:
        """Check the options of a queue; SettingsError names an unknown one or one of another type."""
        defaults = cls()
        known = {field.name: type(getattr(defaults, field.name)) for field in fields(cls)}
        values: dict[str, Any] = {}
        for name, value in options.items():
            kind = known.get(name)
            if kind is None:
                raise SettingsError(f"option {name!r} is not one of {', '.join(sorted(known))}")
            if isinstance(value, bool) or not isinstance(value, (int, float) if kind is float else kind):
                raise SettingsError(f"option {name} = {value!r} is not of type {kind.__name__}")
            values[name] = kind(value)
        return cls(**values)


class FaultBackend:
    """Takes single texts, whatever the task: a token is a byte of the text, and a row's output tells its text.

    The markers of this module, found anywhere in a text, make it fail. `sleep` takes seconds.
    """

    def __init__(
        self,
        options: FaultOptions | None = None,
        *,
        task: str = "embed",
        model: str = "fault",
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._options = options or FaultOptions()
        self._sleep = sleep
        self._is_broken = False
        self._spec = Spec(
            task=task,
            model=model,
            fingerprint=blake2b(f"fault {self._options.dim}".encode(), digest_size=8).hexdigest(),
            dim=self._options.dim,
            max_tokens=self._options.max_tokens,
            precision="fp32",
            device="cpu",
            backend="fault",
        )

    @property
    def spec(self) -> Spec:
        """What it serves."""
        return self._spec

    def tokenise(self, inputs: Sequence[Input], options: EmbedOptions = DEFAULT_OPTIONS) -> list[Tokens]:
        """Return the bytes of each text, cut to `max_tokens`; ValueError for a pair. It takes no prompts."""
        del options
        return [self._tokens(item, index) for index, item in enumerate(inputs)]

    def run(self, batch: Batch) -> NDArray[np.float32]:
        """Return `fault_vector` of each row's text, shape (rows, dim), unless something is to go wrong."""
        texts = [bytes(row.tokens.ids).decode("utf-8", "ignore") for row in batch.rows]
        self._hold()
        self._end_process(texts)
        self._raise_device_fault(batch, texts)
        self._delay(texts)
        if any(BAD in text for text in texts):
            raise ValueError("cannot embed this")
        rows = [fault_vector(text, self._options.dim) for text in texts]
        return np.stack(
            [row * np.float32("nan") if NAN in text else row for row, text in zip(rows, texts, strict=True)]
        )

    def warm_up(self, budget: BatchBudget) -> WarmUp:
        """Nothing is slower the first time, and no size is better than another."""
        del budget
        return WarmUp()

    def _tokens(self, item: Input, index: int) -> Tokens:
        data = single_text(item, index).encode()
        return Tokens(ids=data[: self._options.max_tokens], truncated=len(data) > self._options.max_tokens)

    def _hold(self) -> None:
        while self._options.hold_file and Path(self._options.hold_file).exists():
            self._sleep(HOLD_POLL_S)

    def _end_process(self, texts: Sequence[str]) -> None:
        if any(KILL in text for text in texts):
            os.kill(os.getpid(), signal.SIGKILL)
        if any(EXIT in text for text in texts):
            os._exit(EXIT_CODE)

    def _raise_device_fault(self, batch: Batch, texts: Sequence[str]) -> None:
        self._is_broken = self._is_broken or any(BROKEN in text for text in texts)
        if self._is_broken:
            error = RuntimeError("CUDA error: device-side assert triggered")
            raise (device_fault(error) or error) from error
        if 0 < self._options.oom_cells < batch.padded_tokens:
            raise DeviceOutOfMemory(f"{batch.padded_tokens} cells are over oom_cells = {self._options.oom_cells}")

    def _delay(self, texts: Sequence[str]) -> None:
        seconds = self._options.delay_s + self._options.per_row_s * len(texts)
        if any(SLOW in text for text in texts):
            seconds += self._options.slow_s
        if seconds > 0:
            self._sleep(seconds)


def fault_backend(queue: QueueSettings) -> FaultBackend:
    """Make the backend of a queue whose model is `python:cordwood_worker.testing:fault_backend`."""
    return FaultBackend(FaultOptions.read(queue.options), task=queue.task, model=queue.model)


def fault_vector(text: str, dim: int = DEFAULT_DIM) -> NDArray[np.float32]:
    """Return the unit vector, shape (dim,), that a fault backend makes of this text and of no other.

    A text longer than `max_tokens` bytes counts as what was kept of it.
    """
    seed = int.from_bytes(blake2b(text.encode(), digest_size=16).digest(), "big")
    values = np.random.default_rng(seed).standard_normal(dim)
    return (values / np.linalg.norm(values)).astype(np.float32)
