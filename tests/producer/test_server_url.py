from pathlib import Path
from urllib.parse import quote

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from cordwood.server_url import check_url, masked_url, socket_url

RAW = "p@ss/w#rd:%?"


@pytest.mark.parametrize(
    "url",
    [
        "redis://localhost",
        "redis://localhost:6379/0",
        "redis://:secret@10.0.0.1:6379/15",
        "rediss://user:p%40ss%2Fw%23rd%3A%25%3F@example.org:6380/0?ssl_cert_reqs=required",
        "redis://[::1]:6379",
        "unix:///run/cordwood/server.sock",
        "unix://user:secret@/run/server.sock?db=1",
    ],
)
def test_a_url_that_means_one_thing_is_accepted(url: str) -> None:
    """Each form that redis-py documents passes, with its special characters encoded."""
    check_url(url)


@pytest.mark.parametrize("raw", [RAW, "pa/ss", "pa?ss", "pa#ss", "pa%ss", "p@ss", "pa ss", "pa\nss", "pass#"])
def test_a_raw_special_character_in_a_password_is_refused_with_a_hint(raw: str) -> None:
    """Such a URL would be read as another host without a word, so it is refused, and the message has no part of it."""
    with pytest.raises(ValueError, match="percent-encode") as caught:
        check_url(f"redis://:{raw}@example.org:6379/0")
    assert raw not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://localhost", "scheme"),
        ("localhost:6379", "scheme"),
        ("", "scheme"),
        ("redis://localhost:port", "port"),
        ("redis://localhost:70000", "port"),
        ("redis://localhost/jobs", "number of a database"),
        ("unix://run/server.sock", "absolute"),
        ("unix://u:p@ss@/run/server.sock", "raw @"),
    ],
)
def test_a_malformed_url_is_refused(url: str, reason: str) -> None:
    """The message says which part is wrong."""
    with pytest.raises(ValueError, match=reason):
        check_url(url)


@given(st.text(min_size=1, max_size=30))
def test_every_password_works_once_it_is_encoded(password: str) -> None:
    """What the hint says is true: an encoded password is accepted, and redis-py reads it back as it was."""
    try:
        url = f"redis://:{quote(password, safe='')}@example.org:6379/3"
    except UnicodeEncodeError:
        return
    check_url(url)
    arguments = redis.ConnectionPool.from_url(url).connection_kwargs
    assert (arguments["password"], arguments["host"], arguments["db"]) == (password, "example.org", 3)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:secret@h:1/0", "redis://***@h:1/0"),
        ("redis://h:1/0?password=secret", "redis://h:1/0?***"),
        ("unix://u:secret@/run/s.sock", "unix://***@/run/s.sock"),
        ("redis://h:1/0", "redis://h:1/0"),
        (f"redis://:{RAW}@h:1/0", "redis://***"),
        ("secret", "***://***"),
        ("secret://h", "***://***"),
    ],
)
def test_a_shown_url_has_no_password(url: str, shown: str) -> None:
    """Of a URL that cannot be read for certain only the scheme is shown."""
    assert masked_url(url) == shown


def test_a_socket_with_a_special_name_has_a_url_that_leads_to_it() -> None:
    """A folder's name may hold any character, and redis-py finds the way back."""
    path = Path("/tmp/a b/ü#%?/server.sock")
    check_url(socket_url(path))
    assert redis.ConnectionPool.from_url(socket_url(path)).connection_kwargs["path"] == str(path)
