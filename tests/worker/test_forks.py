"""Case C20: nothing that Cordwood installs forks, so that no child inherits threads that are not there."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
FORKS: Final = frozenset({"fork", "forkpty", "preexec_fn", "multiprocessing", "ProcessPoolExecutor"})
"""What runs Python in a child before it is another program."""


def names(source: str) -> set[str]:
    """Every name that the source uses: of modules, attributes, variables and keyword arguments."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=imported):
                found.update(part for alias in imported for part in alias.name.split("."))
            case ast.ImportFrom(module=module, names=imported):
                found.update([*(module or "").split("."), *(alias.name for alias in imported)])
            case ast.Attribute(attr=name) | ast.Name(id=name) | ast.keyword(arg=str(name)):
                found.add(name)
    return found


def test_c20_nothing_forks() -> None:
    """Children are programs of their own, started by `subprocess`."""
    modules = [path for folder in ("producer", "worker") for path in (ROOT / folder).rglob("*.py")]
    assert len(modules) > 50
    assert {path.name: forks for path in modules if (forks := names(path.read_text("utf-8")) & FORKS)} == {}


def test_a_fork_would_be_found() -> None:
    """In each form that it may take."""
    for source in ("import os; os.fork()", "from os import fork", "import multiprocessing as m", "f(preexec_fn=g)"):
        assert names(source) & FORKS
