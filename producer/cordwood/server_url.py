"""The URL of a server: refused if it would be read as another host than meant, and never shown with its password."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote, urlsplit

SCHEMES: Final = ("redis", "rediss", "unix")

_ENCODE: Final = "percent-encode special characters of the user name and password (urllib.parse.quote(text, safe=''))"
_BAD_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_UNSAFE: Final = re.compile(r"[\x00-\x20\x7f\"<>\\^`{|}]")


def check_url(url: str) -> None:
    """Raise ValueError, whose message holds no part of the URL, unless redis-py will read the URL as it was meant.

    A raw special character in a password (`p@ss/w#rd:%?`) makes a URL that parses well, to another host.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in SCHEMES:
        raise ValueError(f"the scheme must be one of {', '.join(f'{name}://' for name in SCHEMES)}")
    if _UNSAFE.search(url):
        raise ValueError(f"has a space or another character that no URL may hold: {_ENCODE}")
    if _BAD_PERCENT.search(rest):
        raise ValueError(f"has a % that is no percent-encoding: {_ENCODE}")
    if "#" in rest:
        raise ValueError(f"has a #: {_ENCODE}")
    if scheme == "unix":
        _check_socket(rest)
    else:
        _check_host(url, rest)


def masked_url(url: str) -> str:
    """Return the URL with `***` for its user name and password and for its query, to be shown and logged.

    Of a URL that `check_url` refuses only the scheme is kept: it is not certain where its password ends.
    """
    try:
        check_url(url)
    except ValueError:
        scheme, separator, _ = url.partition("://")
        return f"{scheme if separator and scheme in SCHEMES else '***'}://***"
    head, _, query = url.partition("?")
    scheme, _, rest = head.partition("://")
    user_info, _, place = rest.rpartition("@")
    shown = f"{scheme}://***@{place}" if user_info else f"{scheme}://{place}"
    return f"{shown}?***" if query else shown


def socket_url(socket: Path) -> str:
    """Return the URL of a server that listens on this unix socket."""
    return f"unix://{quote(str(socket.absolute()))}"


def _check_socket(rest: str) -> None:
    head, _, _ = rest.partition("?")
    user_info, _, path = head.rpartition("@")
    if "/" in user_info or "@" in user_info:
        raise ValueError(f"has a raw @ or / before the socket's path: {_ENCODE}")
    if not path.startswith("/"):
        raise ValueError("the socket's path must be absolute: unix:///run/server.sock")


def _check_host(url: str, rest: str) -> None:
    authority = re.split(r"[/?]", rest, maxsplit=1)[0]
    if rest.count("@") > 1 or ("@" in rest and "@" not in authority):
        raise ValueError(f"has a raw @, / or ? in its user name or password: {_ENCODE}")
    if not _has_valid_port(url):
        raise ValueError(f"the port is not a number from 1 to 65535: {_ENCODE}")
    database = unquote(urlsplit(url).path).strip("/")
    if database and not database.isdecimal():
        raise ValueError("the path must be the number of a database, such as /0")


def _has_valid_port(url: str) -> bool:
    try:
        port = urlsplit(url).port
    except ValueError:
        return False
    return port is None or port > 0
