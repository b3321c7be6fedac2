"""A fingerprint changes with what a model computes, and with nothing else."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from cordwood_worker.backends.fingerprint import fingerprint

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model's folder with a module of its own."""
    root = tmp_path / "model"
    (root / "1_Dense").mkdir(parents=True)
    (root / "onnx").mkdir()
    modules = [{"path": "", "type": "Transformer"}, {"path": "1_Dense", "type": "Dense"}]
    (root / "modules.json").write_text(json.dumps(modules))
    for name in ("config.json", "model.safetensors", "tokenizer.json", "1_Dense/config.json", "README.md"):
        (root / name).write_text(name)
    (root / "1_Dense/model.safetensors").write_bytes(b"dense")
    (root / "onnx/model.onnx").write_bytes(b"export")
    return root


def test_it_is_the_same_for_a_copy_elsewhere(folder: Path, tmp_path: Path) -> None:
    """16 hex digits that do not depend on the path."""
    copy = shutil.copytree(folder, tmp_path / "copy")
    assert fingerprint(copy) == fingerprint(folder)
    assert len(fingerprint(folder)) == 16
    assert int(fingerprint(folder), 16) > 0


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "tokenizer.json", "modules.json", "1_Dense/model.safetensors"]
)
def test_it_changes_with_every_file_that_decides_the_output(folder: Path, name: str) -> None:
    """One more byte is enough."""
    before = fingerprint(folder)
    with (folder / name).open("ab") as file:
        file.write(b" ")
    assert fingerprint(folder) != before


@pytest.mark.parametrize("name", ["README.md", "onnx/model.onnx", ".gitattributes"])
def test_it_does_not_change_with_the_rest(folder: Path, name: str) -> None:
    """Readmes and exports for other runtimes compute nothing here."""
    before = fingerprint(folder)
    with (folder / name).open("ab") as file:
        file.write(b"x")
    assert fingerprint(folder) == before


def test_a_file_that_moves_to_another_module_changes_it(folder: Path) -> None:
    """Names count, not only contents."""
    before = fingerprint(folder)
    (folder / "1_Dense/model.safetensors").rename(folder / "other.safetensors")
    assert fingerprint(folder) != before
