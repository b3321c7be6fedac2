"""What is in the published files, and what is not."""

from __future__ import annotations

import tarfile
from pathlib import Path
from zipfile import ZipFile

from tests.packaging.conftest import ROOT


def _sources(root: Path, package: str) -> set[str]:
    files = (root / package).rglob("*")
    wanted = (file for file in files if file.suffix in {".py", ".lua", ".typed"})
    return {file.relative_to(root).as_posix() for file in wanted}


def test_the_wheel_has_every_module_and_script_of_both_packages_and_nothing_else(wheel: Path) -> None:
    """Also the Lua files and the marks of typed packages."""
    with ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == _sources(ROOT / "producer", "cordwood") | _sources(ROOT / "worker", "cordwood_worker")
    assert {"cordwood/scripts/lib/settle.lua", "cordwood/py.typed", "cordwood_worker/py.typed"} <= names


def test_the_source_distribution_can_build_the_wheel_and_carries_no_more(dist: Path) -> None:
    """Sources, example configurations, licence and readme."""
    (found,) = dist.glob("*.tar.gz")
    with tarfile.open(found) as archive:
        parts = {name.split("/", 2)[1] for name in archive.getnames() if "/" in name}
    assert {"producer", "worker", "configs", "pyproject.toml", "README.md", "LICENSE"} <= parts
    assert not parts & {"tests", "docs", "demo", "benchmarks", ".venv", ".git"}
