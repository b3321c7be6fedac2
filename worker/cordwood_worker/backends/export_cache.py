"""The folder of exported models: whole entries only, checked by digest, bounded in bytes."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final

from cordwood.errors import SettingsError

MAX_CACHE_BYTES: Final = 16 << 30
"""Above this the entries that were used longest ago go; MiniLM takes 91 MB, a model of 560 million weights 2.2 GB."""
MANIFEST_NAME: Final = "export.json"
MANIFEST_VERSION: Final = 1
_MAKING: Final = ".export-"
_CHUNK_BYTES: Final = 1 << 20

_log = logging.getLogger(__name__)


def default_cache_dir() -> Path:
    """Return `cordwood` in `$XDG_CACHE_HOME`, or in `~/.cache` where that is not set."""
    named = os.environ.get("XDG_CACHE_HOME")
    return (Path(named) if named else Path.home() / ".cache") / "cordwood"


class ExportCache:
    """Entries are folders of plain files, each beside a manifest of their sizes and digests.

    An entry is made in a folder of another name and renamed, so that it is there whole or not at all, and two workers
    may make the same one at once. Any entry, or the whole folder, may be deleted at any time: it is made again when a
    worker next asks for it.
    """

    def __init__(self, folder: Path, *, max_bytes: int = MAX_CACHE_BYTES) -> None:
        self._folder = folder
        self._max_bytes = max_bytes

    def find(self, name: str) -> Path | None:
        """Return the folder of an entry; None if there is none, or if it is damaged, and then it is deleted."""
        entry = self._folder / name
        if not entry.is_dir():
            return None
        if not _is_whole(entry):
            _log.warning("exported model %s is damaged: making it anew", entry)
            self._delete(entry)
            return None
        with suppress(OSError):  # a cache that cannot be written can still be read
            os.utime(entry)
        return entry

    def find_or_make(self, name: str, write: Callable[[Path], None]) -> Path:
        """Return the folder of an entry; where there is none, `write` puts its files into an empty folder.

        Raises SettingsError if the folder of the cache cannot be written, and lets errors of `write` through.
        """
        found = self.find(name)
        if found is not None:
            return found
        try:
            return self._make(name, write)
        except OSError as error:
            message = f"exported models cannot be kept in {self._folder}: {error} (XDG_CACHE_HOME names another place)"
            raise SettingsError(message) from error

    def _make(self, name: str, write: Callable[[Path], None]) -> Path:
        entry = self._folder / name
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._sweep()
        with _locked_folder(self._folder) as making:
            write(making)
            _write_manifest(making)
            try:
                making.rename(entry)
            except OSError:
                if not _is_whole(entry):  # else another worker was first, and its export is as good
                    raise
        self._shrink(entry)
        return entry

    def _sweep(self) -> None:
        """Delete what exports left that were killed: the lock on a folder goes with the process that made it."""
        for path in self._folder.glob(f"{_MAKING}*"):
            with suppress(OSError):
                descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path)
                finally:
                    os.close(descriptor)

    def _shrink(self, newest: Path) -> None:
        """Delete the entries that were used longest ago until the rest fits. A worker that has one open keeps it."""
        entries = [path.parent for path in self._folder.glob(f"[!.]*/{MANIFEST_NAME}") if path.parent != newest]
        used = sorted(entries, key=_used_at, reverse=True)
        total = _size(newest)
        for entry in used:
            total += _size(entry)
            if total > self._max_bytes:
                _log.info("exported models take over %d bytes: deleting %s", self._max_bytes, entry)
                self._delete(entry)

    def _delete(self, entry: Path) -> None:
        """Take an entry away at once, then delete its files; if a sweep comes in between, that deletes them."""
        with suppress(OSError):
            doomed = Path(tempfile.mkdtemp(prefix=_MAKING, dir=self._folder))
            entry.rename(doomed)  # a folder may take the place of an empty one
            shutil.rmtree(doomed)


@contextmanager
def _locked_folder(place: Path) -> Iterator[Path]:
    """Make an empty folder that no sweep takes, for as long as this process lives; delete it unless it was renamed."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_MAKING, dir=place))
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if folder.is_dir():  # else a sweep came between the two lines
            break
        os.close(descriptor)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _write_manifest(folder: Path) -> None:
    files = {path.name: {"bytes": path.stat().st_size, "blake2b": _digest(path)} for path in sorted(folder.iterdir())}
    manifest = {"version": MANIFEST_VERSION, "files": files}
    (folder / MANIFEST_NAME).write_text(json.dumps(manifest, indent=1), "utf-8")


def _is_whole(entry: Path) -> bool:
    try:
        manifest = json.loads((entry / MANIFEST_NAME).read_text("utf-8"))
        if manifest["version"] != MANIFEST_VERSION:
            return False
        files = {Path(name).name: (about["bytes"], about["blake2b"]) for name, about in manifest["files"].items()}
        sizes_hold = all((entry / name).stat().st_size == size for name, (size, _) in files.items())
        return bool(files) and sizes_hold and all(_digest(entry / name) == want for name, (_, want) in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _digest(path: Path) -> str:
    total = blake2b(digest_size=16)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            total.update(chunk)
    return total.hexdigest()


def _size(entry: Path) -> int:
    with suppress(OSError):
        return sum(path.stat().st_size for path in entry.iterdir())
    return 0


def _used_at(entry: Path) -> float:
    with suppress(OSError):
        return entry.stat().st_mtime
    return 0.0
