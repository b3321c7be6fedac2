"""Enforces the house limits on the size of things: `python tests/limits.py [folder or file ...]`.

Modules to 350 lines; functions to 40 lines of code (docstring and blank lines not counted), nesting to 3, positional
parameters to 6 (self and cls not counted, keyword-only ones free); public methods to 15 a class. A file may not be
split only for the count. There is no list of exceptions.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDERS: Final = ("producer", "worker", "tests", "benchmarks", "demo")
MODULE_LINES: Final = 350
FUNCTION_LINES: Final = 40
NESTING: Final = 3
POSITIONAL: Final = 6
PUBLIC_METHODS: Final = 15

_SPLIT_FOR_THE_COUNT: Final = re.compile(r".*(_impl|_more|_?2)")
_NAMELESS: Final = frozenset({"utils", "util", "helper", "helpers", "manager", "base", "common", "misc"})
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_BLOCKS: Final = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)

_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Violation:
    """One place that is over a limit."""

    path: Path
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


def violations_in(path: Path, source: str) -> list[Violation]:
    """Return what is over a limit in this Python source, in the order of its lines."""
    lines = source.splitlines()
    found = [Violation(path, 1, message) for message in _module_faults(path, len(lines))]
    for node in ast.walk(ast.parse(source, filename=str(path))):
        if isinstance(node, _FUNCTIONS):
            faults = _function_faults(node, lines)
        elif isinstance(node, ast.ClassDef):
            faults = _class_faults(node)
        else:
            continue
        found += [Violation(path, node.lineno, message) for message in faults]
    return sorted(found, key=lambda violation: violation.line)


def _module_faults(path: Path, count: int) -> Iterator[str]:
    if count > MODULE_LINES:
        yield f"module has {count} lines, over the limit of {MODULE_LINES}"
    if path.stem in _NAMELESS:
        yield f"module name {path.stem!r} says nothing: name the noun"
    if _SPLIT_FOR_THE_COUNT.fullmatch(path.stem):
        yield f"module name {path.stem!r} looks split for the count: name the noun"


def _function_faults(node: _Function, lines: Sequence[str]) -> Iterator[str]:
    code = _code_lines(node, lines)
    if code > FUNCTION_LINES:
        yield f"function {node.name} has {code} lines of code, over the limit of {FUNCTION_LINES}"
    depth = max((_depth(child) for child in node.body), default=0)
    if depth > NESTING:
        yield f"function {node.name} is nested {depth} deep, over the limit of {NESTING}"
    positional = len(_positional(node))
    if positional > POSITIONAL:
        yield f"function {node.name} has {positional} positional parameters, over the limit of {POSITIONAL}"


def _code_lines(node: _Function, lines: Sequence[str]) -> int:
    """Count from `def` to the last line, without blank lines and without the docstring."""
    docstring = range(0)
    first = node.body[0]
    if ast.get_docstring(node, clean=False) is not None:
        docstring = range(first.lineno, (first.end_lineno or first.lineno) + 1)
    numbers = range(node.lineno, (node.end_lineno or node.lineno) + 1)
    return sum(1 for number in numbers if number not in docstring and lines[number - 1].strip())


def _positional(node: _Function) -> list[str]:
    names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def _depth(node: ast.AST) -> int:
    """Count blocks inside each other. An `elif` is no deeper than its `if`, and a nested function starts anew."""
    if isinstance(node, (*_FUNCTIONS, ast.ClassDef, ast.Lambda)):
        return 0
    own = 1 if isinstance(node, _BLOCKS) else 0
    deepest = 0
    for child in ast.iter_child_nodes(node):
        below = _depth(child)
        if isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]:
            below -= 1
        deepest = max(deepest, below)
    return own + deepest


def _class_faults(node: ast.ClassDef) -> Iterator[str]:
    names = {member.name for member in node.body if isinstance(member, _FUNCTIONS) and not member.name.startswith("_")}
    if len(names) > PUBLIC_METHODS:
        yield f"class {node.name} has {len(names)} public methods, over the limit of {PUBLIC_METHODS}"


def python_files(roots: Iterable[Path]) -> Iterator[Path]:
    """Yield the Python files under these folders, sorted, and the files named themselves."""
    for root in roots:
        if root.is_dir():
            yield from sorted(path for path in root.rglob("*.py") if "__pycache__" not in path.parts)
        elif root.exists():
            yield root


def main(arguments: Sequence[str]) -> int:
    """Print every violation and return 1 if there is one; without arguments look at all of `FOLDERS`."""
    roots = [Path(argument) for argument in arguments or FOLDERS]
    files = list(python_files(roots))
    found = [violation for path in files for violation in violations_in(path, path.read_text("utf-8"))]
    for violation in found:
        sys.stdout.write(f"{violation}\n")
    sys.stdout.write(f"limits: {len(files)} modules, {len(found)} violations\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
