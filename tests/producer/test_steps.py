from collections.abc import Generator
from typing import Any

import pytest

from cordwood.errors import CordwoodError, ServerUnavailable
from cordwood.steps import Answer, Ended, Pause, proceed


def sums_two_answers() -> Generator[Pause, Any, int]:
    """Ask twice, and make do with 10 where the server does not answer."""
    total = 0
    for number in (1, 2):
        try:
            total += yield Pause(number)
        except ServerUnavailable:
            total += 10
    return total


def test_an_operation_gets_each_answer_at_the_step_that_asked() -> None:
    """And has its value when no step is left."""
    operation = sums_two_answers()
    assert proceed(operation, Answer()) == Pause(1)
    assert proceed(operation, Answer(5)) == Pause(2)
    assert proceed(operation, Answer(7)) == Ended(12)


def test_an_error_is_raised_at_the_step_and_may_be_outlasted() -> None:
    """What the operation does not know of passes through."""
    operation = sums_two_answers()
    proceed(operation, Answer())
    assert proceed(operation, Answer(error=ServerUnavailable("gone"))) == Pause(2)
    with pytest.raises(CordwoodError, match="other"):
        proceed(operation, Answer(error=CordwoodError("other")))


def test_an_operation_without_steps_ends_at_once() -> None:
    """Its value may be None."""

    def nothing() -> Generator[Pause, Any, None]:
        yield from ()

    assert proceed(nothing(), Answer()) == Ended(None)
