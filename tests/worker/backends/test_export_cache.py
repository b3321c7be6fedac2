"""Entries of the cache are whole or absent, whatever dies, and take bounded room."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cordwood.errors import SettingsError
from cordwood_worker.backends.export_cache import MANIFEST_NAME, ExportCache, default_cache_dir
from tests.worker.backends.families import damage

KILLED_EXPORT = """
import sys
from pathlib import Path
from cordwood_worker.backends.export_cache import ExportCache

def write(folder):
    (folder / "model.bin").write_bytes(b"half")
    print("writing", flush=True)
    sys.stdin.read()

ExportCache(Path(sys.argv[1])).find_or_make("entry", write)
"""


def write_model(folder: Path) -> None:
    """Stand in for an export of 1,000 bytes."""
    (folder / "model.bin").write_bytes(b"w" * 1_000)


def refuse(folder: Path) -> None:
    """Stand in for an export that must not happen."""
    raise AssertionError(folder)


def test_an_entry_is_made_once(tmp_path: Path) -> None:
    """The second look finds it, and nothing else lies in the folder."""
    cache = ExportCache(tmp_path / "cache")
    entry = cache.find_or_make("entry", write_model)
    assert cache.find_or_make("entry", refuse) == entry
    assert sorted(path.name for path in entry.iterdir()) == [MANIFEST_NAME, "model.bin"]
    assert list((tmp_path / "cache").iterdir()) == [entry]


def test_an_export_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """Its error comes through as it is."""
    cache = ExportCache(tmp_path)
    with pytest.raises(AssertionError):
        cache.find_or_make("entry", refuse)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["model.bin", MANIFEST_NAME])
def test_a_damaged_entry_is_made_anew(tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    """A byte that changed is noticed, and said."""
    cache = ExportCache(tmp_path)
    entry = cache.find_or_make("entry", write_model)
    damage(entry / name)
    assert cache.find("entry") is None
    assert "damaged" in caplog.text
    assert cache.find_or_make("entry", write_model) == entry
    assert (entry / "model.bin").read_bytes() == b"w" * 1_000


def test_an_entry_that_lost_a_file_is_made_anew(tmp_path: Path) -> None:
    """As after somebody cleared a part of the cache by hand."""
    cache = ExportCache(tmp_path)
    entry = cache.find_or_make("entry", write_model)
    (entry / "model.bin").unlink()
    assert cache.find("entry") is None


def test_of_two_exports_at_once_one_is_kept(tmp_path: Path) -> None:
    """The second finds the first one's entry in its place and takes it; neither sweeps the other's folder away."""
    cache = ExportCache(tmp_path)

    def write_late(folder: Path) -> None:
        write_model(folder)
        ExportCache(tmp_path).find_or_make("entry", write_model)

    entry = cache.find_or_make("entry", write_late)
    assert cache.find("entry") == entry
    assert list(tmp_path.iterdir()) == [entry]


def test_what_a_killed_export_leaves_is_no_entry_and_is_swept(tmp_path: Path) -> None:
    """A real process, killed while it writes."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", KILLED_EXPORT, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"writing\n"
        cache = ExportCache(tmp_path)
        other = cache.find_or_make("other", write_model)
        assert len(list(tmp_path.iterdir())) == 2
        process.kill()
    assert cache.find("entry") is None
    entry = cache.find_or_make("entry", write_model)
    assert sorted(tmp_path.iterdir()) == [entry, other]


def test_entries_used_longest_ago_make_room(tmp_path: Path) -> None:
    """The newest stays even if it is over the bound alone; folders of others are no entries."""
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    cache = ExportCache(tmp_path, max_bytes=3_000)
    for age, name in enumerate(["one", "two"]):
        os.utime(cache.find_or_make(name, write_model), (age, age))
    assert cache.find("one") is not None
    cache.find_or_make("three", write_model)
    assert {path.name for path in tmp_path.iterdir()} == {"one", "three", "stranger"}
    ExportCache(tmp_path, max_bytes=10).find_or_make("four", write_model)
    assert {path.name for path in tmp_path.iterdir()} == {"four", "stranger"}


def test_a_cache_that_cannot_be_written_is_a_setting_at_fault(tmp_path: Path) -> None:
    """The message names the place and the remedy."""
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match=r"file.*XDG_CACHE_HOME"):
        ExportCache(tmp_path / "file").find_or_make("entry", write_model)


def test_the_default_place_is_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By the XDG base directory rules."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache_dir() == tmp_path / "cordwood"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_cache_dir() == Path.home() / ".cache" / "cordwood"
