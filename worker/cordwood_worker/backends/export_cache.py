"""Where exported models are kept: one folder each, made whole before it has its name."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

WHOLE: Final = "whole"
"""The file that is written last into a folder."""

_log = logging.getLogger(__name__)


def default_root() -> Path:
    """Return `$XDG_CACHE_HOME/cordwood`, or `~/.cache/cordwood`. It may be deleted at any time."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "cordwood"


def cached_export(name: str, export: Callable[[Path], None], root: Path | None = None) -> Path:
    """Return the folder of that name, filled by `export` if it is not there yet.

    It is filled under another name and then renamed, so that workers that export at the same time, or die over it,
    leave nothing half. Raises what `export` raises, and OSError.
    """
    place = root or default_root()
    folder = place / name
    if (folder / WHOLE).is_file():
        return folder
    place.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=place))
    try:
        _log.info("exporting to %s", folder)
        export(draft)
        (draft / WHOLE).touch()
        if folder.exists() and not (folder / WHOLE).is_file():
            shutil.rmtree(folder, ignore_errors=True)
        try:
            draft.rename(folder)
        except OSError:
            # Another worker was faster; what it made is the same.
            if not (folder / WHOLE).is_file():
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def discard(folder: Path) -> None:
    """Remove an export that cannot be read, so that it is made anew."""
    _log.warning("the export in %s cannot be read, it is made anew", folder)
    shutil.rmtree(folder, ignore_errors=True)
