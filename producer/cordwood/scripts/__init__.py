"""The Lua scripts: every change of a job's state is one of them, and each header says what a repeated call does."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_JOBS_PER_CALL: Final = 512
MAX_BYTES_PER_CALL: Final = 1024 * 1024

_INCLUDE: Final = "-- include:"


@dataclass(frozen=True, slots=True)
class Script:
    """The text of one script with its includes in place, and the digest that EVALSHA knows it by."""

    name: str
    text: str
    sha: str


@cache
def script(name: str) -> Script:
    """Return the script of that name, such as `submit`."""
    return assemble(name, {})


def assemble(name: str, replaced: Mapping[str, str]) -> Script:
    """Put a script together from its file and the parts that its `-- include:` line names.

    `replaced` gives other texts for some parts: tests put a clock of their own in the place of `clock`.
    """
    folder = files(__name__)
    lines: list[str] = []
    for line in (folder / f"{name}.lua").read_text("utf-8").splitlines():
        if line.startswith(_INCLUDE):
            parts = line.removeprefix(_INCLUDE).split()
            lines += [replaced.get(part) or (folder / "lib" / f"{part}.lua").read_text("utf-8") for part in parts]
        else:
            lines.append(line)
    text = "\n".join(lines)
    # EVALSHA's digest is SHA-1 by definition; nothing here depends on its strength.
    return Script(name, text, sha1(text.encode(), usedforsecurity=False).hexdigest())
