"""Reading the project's documents: their code blocks, tables, links and the paths that they name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
README: Final = ROOT / "README.md"
ARCHITECTURE: Final = ROOT / "docs" / "architecture.md"
DECISIONS: Final = ROOT / "docs" / "adr"

_BLOCK: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
_CODE: Final = re.compile(r"`([^`\n]+)`")
_PATH: Final = re.compile(r"[\w.-]+(/[\w.-]+)+(::\w+)?")


def documents() -> list[Path]:
    """Return every document of the project."""
    return [README, ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(text: str, language: str) -> list[str]:
    """Return the contents of the fenced blocks in a language, in order."""
    return [body for name, body in _BLOCK.findall(text) if name == language]


def commands(text: str, program: str) -> list[list[str]]:
    """Return the arguments of each `$ program ...` line of the console blocks, without where the output goes."""
    bodies = [line for body in blocks(text, "console") for line in body.splitlines()]
    lines = [line.removeprefix("$ ").partition(" > ")[0].split() for line in bodies]
    return [words[1:] for words in lines if words[0] == program]


def table(text: str, *headings: str) -> list[list[str]]:
    """Return the rows of the first table with these headings, each a list of cells; there must be one."""
    lines = iter(text.splitlines())
    wanted = list(headings)
    for line in lines:
        if line.startswith("|") and _cells(line) == wanted:
            next(lines)
            return list(_rows(lines))
    raise LookupError(f"no table with the headings {wanted}")


def codes(text: str) -> list[str]:
    """Return what stands between backticks, in order."""
    return _CODE.findall(_BLOCK.sub("", text))


def links(text: str) -> list[str]:
    """Return the targets of the links within the project, without anchors."""
    return [target.partition("#")[0] for target in _LINK.findall(text) if "://" not in target]


def paths(text: str) -> list[str]:
    """Return the paths from the root of the repository that are named, some with `::` and a function's name."""
    folders = {path.name for path in ROOT.iterdir() if path.is_dir()}
    return [code for code in codes(text) if _PATH.fullmatch(code) and code.split("/")[0] in folders]


def _rows(lines: Iterator[str]) -> Iterator[list[str]]:
    for line in lines:
        if not line.startswith("|"):
            return
        yield _cells(line)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
