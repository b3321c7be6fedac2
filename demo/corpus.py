"""The demo's passages: paragraphs of the documentation strings of Python's own standard library.

Source: the library of the Python that runs the demo. Licence: PSF License Agreement,
https://docs.python.org/3/license.html.
"""

from __future__ import annotations

import ast
import re
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MODULES: Final = (
    *("argparse", "ast", "asyncio.base_events", "asyncio.events", "asyncio.locks", "asyncio.queues"),
    *("asyncio.runners", "asyncio.streams", "asyncio.tasks", "base64", "bdb", "bisect", "bz2", "calendar", "cmd"),
    *("code", "codecs", "collections", "concurrent.futures._base", "concurrent.futures.process", "configparser"),
    *("contextlib", "ctypes", "_pydatetime", "datetime", "_pydecimal", "difflib", "dis", "doctest"),
    *("email.generator", "email.message", "email.policy", "email.utils", "fileinput", "ftplib", "functools", "glob"),
    *("graphlib", "gzip", "hmac", "http.client", "http.cookiejar", "http.cookies", "http.server", "importlib.abc"),
    *("importlib.metadata", "importlib.util", "inspect", "_pyio", "ipaddress", "json", "json.encoder", "linecache"),
    *("locale", "logging", "logging.handlers", "lzma", "mimetypes", "multiprocessing.shared_memory", "numbers"),
    *("optparse", "os", "pdb", "pkgutil", "platform", "poplib", "py_compile", "pyclbr", "pydoc", "queue", "quopri"),
    *("random", "rlcompleter", "sched", "secrets", "selectors", "shelve", "shutil", "site", "smtplib", "socket"),
    *("socketserver", "ssl", "statistics", "subprocess", "symtable", "tarfile", "tempfile", "textwrap"),
    *("threading", "timeit", "traceback", "turtle", "typing", "unittest.case", "unittest.mock", "urllib.parse"),
    *("urllib.request", "urllib.robotparser", "uuid", "venv", "warnings", "webbrowser", "wsgiref.handlers"),
    *("xml.etree.ElementTree", "xml.sax.handler", "xml.sax.xmlreader", "xmlrpc.client", "xmlrpc.server", "zipfile"),
)
"""Modules written in Python. Their sources are read, not imported; one that this Python lacks is left out."""
MIN_CHARACTERS: Final = 50
MAX_CHARACTERS: Final = 160
PASSAGES: Final = 2_000


@dataclass(frozen=True, slots=True)
class Passage:
    """One paragraph, and the object that it documents, such as `difflib.SequenceMatcher`."""

    source: str
    text: str


class CorpusTooSmall(Exception):
    """This Python comes without the sources of its library; another one will do."""


def load_passages(count: int = PASSAGES, modules: Sequence[str] = MODULES) -> list[Passage]:
    """Return `count` different passages, evenly chosen from the modules; the same ones for the same Python.

    Raises CorpusTooSmall if there are fewer.
    """
    found = {passage.text: passage for module in modules for passage in read_module(module)}
    passages = list(found.values())
    if len(passages) < count:
        raise CorpusTooSmall(f"the standard library's sources have {len(passages)} passages here, not {count}")
    return [passages[index * len(passages) // count] for index in range(count)]


def read_module(name: str) -> Iterator[Passage]:
    """Yield the passages of one module in the order of its source, none if it is not there as a source."""
    path = Path(sysconfig.get_path("stdlib"), *name.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.is_file():
            yield from _passages(ast.parse(candidate.read_bytes()), name)
            return


def clean_paragraphs(docstring: str) -> Iterator[str]:
    """Yield the paragraphs of prose, each on one line; lists, examples and headings are left out."""
    for paragraph in re.split(r"\n\s*\n", docstring):
        text = " ".join(paragraph.split())
        is_prose = text[:1].isupper() and text[-1:] in (".", ":") and ">>>" not in text
        if is_prose and MIN_CHARACTERS <= len(text) <= MAX_CHARACTERS:
            yield text


def _passages(node: ast.AST, name: str) -> Iterator[Passage]:
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        docstring = ast.get_docstring(node)
        yield from (Passage(name, text) for text in clean_paragraphs(docstring or ""))
        for child in _documented(node.body):
            yield from _passages(child, f"{name}.{child.name}")


def _documented(body: Iterable[ast.stmt]) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    for statement in body:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield statement
