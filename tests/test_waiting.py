import threading

import pytest

from tests.waiting import wait_until


def test_what_becomes_true_is_returned() -> None:
    """The predicate's own answer comes back, so that it can be looked at."""
    answers = iter([0, None, "", "ready"])
    assert wait_until(lambda: next(answers), description="there is an answer") == "ready"


def test_what_another_thread_does_is_seen() -> None:
    """The wait ends with the event, not with the time."""
    event = threading.Event()
    threading.Thread(target=event.set).start()
    assert wait_until(event.is_set, description="the event is set", timeout_s=30.0)


def test_waiting_in_vain_says_for_what() -> None:
    """The description stands in the error, and so does the time."""
    with pytest.raises(TimeoutError, match=r"waited 0\.02 s in vain until pigs fly"):
        wait_until(lambda: False, description="pigs fly", timeout_s=0.02)


def test_an_error_of_the_predicate_passes_through() -> None:
    """It is not mistaken for a no."""
    with pytest.raises(ZeroDivisionError):
        wait_until(lambda: 1 // 0, description="nothing")
