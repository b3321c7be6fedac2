"""The demo's passages: paragraphs of the documentation strings of Python's own standard library.

Source: the Python that runs the demo. Licence: PSF License Agreement, https://docs.python.org/3/license.html.
"""

from __future__ import annotations

import ast
import re
import textwrap
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

MODULES: Final = (
    *("abc", "argparse", "ast", "asyncio.base_events", "asyncio.events", "asyncio.locks", "asyncio.queues"),
    *("asyncio.runners", "asyncio.streams", "asyncio.subprocess", "asyncio.taskgroups", "asyncio.tasks", "base64"),
    *("bdb", "bisect", "bz2", "calendar", "cmd", "code", "codecs", "collections", "colorsys", "compileall"),
    *("concurrent.futures._base", "concurrent.futures.process", "concurrent.futures.thread", "configparser"),
    *("contextlib", "copy", "csv", "ctypes", "dataclasses", "datetime", "_pydatetime", "decimal", "_pydecimal"),
    *("difflib", "dis", "doctest", "email.charset", "email.generator", "email.header", "email.message"),
    *("email.parser", "email.policy", "email.utils", "enum", "filecmp", "fileinput", "fnmatch", "fractions"),
    *("ftplib", "functools", "getopt", "getpass", "gettext", "glob", "graphlib", "gzip", "hashlib", "heapq", "hmac"),
    *("html", "html.parser", "http", "http.client", "http.cookiejar", "http.cookies", "http.server", "imaplib"),
    *("importlib.abc", "importlib.metadata", "importlib.resources", "importlib.util", "inspect", "_pyio", "io"),
    *("ipaddress", "json", "json.decoder", "json.encoder", "keyword", "linecache", "locale", "logging"),
    *("logging.config", "logging.handlers", "lzma", "mailbox", "mimetypes", "multiprocessing.connection"),
    *("multiprocessing.context", "multiprocessing.managers", "multiprocessing.pool", "multiprocessing.queues"),
    *("multiprocessing.shared_memory", "netrc", "ntpath", "nturl2path", "numbers", "opcode", "operator", "optparse"),
    *("os", "pdb", "pickle", "pickletools", "pkgutil", "platform", "plistlib", "poplib", "posixpath", "pprint"),
    *("profile", "pstats", "pty", "py_compile", "pyclbr", "pydoc", "queue", "quopri", "random", "reprlib"),
    *("rlcompleter", "runpy", "sched", "secrets", "selectors", "shelve", "shlex", "shutil", "signal", "site"),
    *("smtplib", "socket", "socketserver", "ssl", "stat", "statistics", "string", "stringprep", "subprocess"),
    *("symtable", "sysconfig", "tabnanny", "tarfile", "tempfile", "textwrap", "threading", "timeit", "token"),
    *("tokenize", "trace", "traceback", "tracemalloc", "turtle", "types", "typing", "unittest.case"),
    *("unittest.loader", "unittest.main", "unittest.mock", "unittest.runner", "unittest.suite", "urllib.error"),
    *("urllib.parse", "urllib.request", "urllib.response", "urllib.robotparser", "uuid", "venv", "warnings", "wave"),
    *("weakref", "webbrowser", "wsgiref.handlers", "wsgiref.simple_server", "wsgiref.util", "xml.dom.minidom"),
    *("xml.etree.ElementTree", "xml.sax.handler", "xml.sax.saxutils", "xml.sax.xmlreader", "xmlrpc.client"),
    *("xmlrpc.server", "zipapp", "zipfile", "zoneinfo"),
)
"""Modules written in Python. Their sources are read, not imported; one that this Python lacks is left out."""
MIN_CHARACTERS: Final = 60
MAX_CHARACTERS: Final = 280
