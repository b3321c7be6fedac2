"""What the pure core asks of a client: the few kinds of steps that touch the server or wait.

An operation is a generator: it yields steps and gets each step's answer, or the error, at the same place. `Client`
performs the steps with blocking calls, `AsyncClient` with awaited ones, and neither knows what they are for.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from cordwood.done import Ticket
    from cordwood.errors import CordwoodError
    from cordwood.keys import Keys

Argument = str | bytes | int | float
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Commands:
    """Plain commands sent together, not as a transaction; the answer is the list of their replies.

    A call that is not `patient` is given up soon and not repeated by the connection: its operation does that.
    """

    commands: tuple[tuple[Argument, ...], ...]
    patient: bool = True


@dataclass(frozen=True, slots=True)
class ScriptCall:
    """One call of a script; the answer is its reply. `patient` is as in `Commands`."""

    name: str
    keys: tuple[str, ...]
    args: tuple[Argument, ...]
    patient: bool = True


@dataclass(frozen=True, slots=True)
class Listen:
    """Be sure that the queue's `done` shard is being read for tickets that are open by now; no answer."""

    keys: Keys


@dataclass(frozen=True, slots=True)
class Park:
    """Wait until the ticket is woken, at most `timeout_s`; the answer says whether it was."""

    ticket: Ticket
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Pause:
    """Do nothing for `pause_s`; no answer."""

    pause_s: float


Step = Commands | ScriptCall | Listen | Park | Pause
Operation = Generator[Step, Any, _T]


@dataclass(frozen=True, slots=True)
class Answer:
    """What performing a step gave: a value, or one of our own errors, which the operation may outlast."""

    value: Any = None
    error: CordwoodError | None = None


@dataclass(frozen=True, slots=True)
class Ended(Generic[_T]):
    """The value of an operation that has no step left."""

    value: _T


def proceed(operation: Operation[_T], answer: Answer) -> Step | Ended[_T]:
    """Give an operation the answer to its last step, at first an empty one, and return what comes next."""
    try:
        return operation.send(answer.value) if answer.error is None else operation.throw(answer.error)
    except StopIteration as end:
        return Ended(end.value)
