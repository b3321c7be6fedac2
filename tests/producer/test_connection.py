import pytest
from redis import exceptions

from cordwood.connection import translated_errors
from cordwood.errors import CordwoodError, ServerFull, ServerUnavailable


@pytest.mark.parametrize(
    ("raised", "kind", "words"),
    [
        (exceptions.ConnectionError("refused"), ServerUnavailable, "no answer from the server: refused"),
        (exceptions.TimeoutError("slow"), ServerUnavailable, "no answer from the server: slow"),
        (exceptions.BusyLoadingError("loading"), ServerUnavailable, "no answer from the server: loading"),
        (exceptions.AuthenticationError("WRONGPASS"), ServerUnavailable, "the server refused the login: WRONGPASS"),
        (exceptions.ReadOnlyError("READONLY"), ServerUnavailable, "a read-only replica"),
        (exceptions.OutOfMemoryError("command not allowed"), ServerFull, "out of memory"),
        (exceptions.ResponseError("OOM command not allowed"), ServerFull, "out of memory"),
        (exceptions.ResponseError("WRONGTYPE of key"), CordwoodError, "the server refused a call: WRONGTYPE of key"),
        (exceptions.DataError("odd"), CordwoodError, "the server refused a call: odd"),
    ],
)
def test_what_the_library_raises_says_what_it_means_to_a_caller(
    raised: Exception, kind: type[CordwoodError], words: str
) -> None:
    """And keeps the library's own error as the cause."""
    with pytest.raises(CordwoodError, match=words) as caught, translated_errors():
        raise raised
    assert type(caught.value) is kind
    assert caught.value.__cause__ is raised


def test_errors_of_others_pass_through() -> None:
    """A mistake of the program is no outage."""
    with pytest.raises(ZeroDivisionError), translated_errors():
        raise ZeroDivisionError
