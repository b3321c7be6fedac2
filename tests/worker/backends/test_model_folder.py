"""From the name of a model to its files, by one rule."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from cordwood.errors import SettingsError
from cordwood_worker.backends.model_folder import WEIGHT_PACKAGES, find_model_folder
from tests.models import MINILM, minilm_folder

if TYPE_CHECKING:
    from pathlib import Path


def test_a_folder_is_itself(tmp_path: Path) -> None:
    """Nothing else is asked."""
    assert find_model_folder(str(tmp_path)) == tmp_path


@pytest.mark.parametrize("name", [MINILM, "all-MiniLM-L6-v2"])
def test_a_weight_package_serves_its_model_where_the_cache_does_not(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """With and without the organisation, and the log says so."""
    assert MINILM in WEIGHT_PACKAGES
    with caplog.at_level(logging.INFO):
        assert find_model_folder(name) == minilm_folder()
    assert "installed package" in caplog.text


def test_a_copy_in_the_hub_cache_comes_before_a_weight_package(tmp_path: Path) -> None:
    """In the hub's own layout, by the main revision or a pinned one."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    model = tmp_path / "models--sentence-transformers--all-MiniLM-L6-v2"
    snapshot = model / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(commit)
    (snapshot / "config.json").write_text("{}")
    assert find_model_folder(MINILM, cache_dir=tmp_path) == minilm_folder(), "without weights it is not a copy"
    (snapshot / "model.safetensors").touch()
    assert find_model_folder(MINILM, cache_dir=tmp_path) == snapshot
    assert find_model_folder(MINILM, commit, cache_dir=tmp_path) == snapshot


def test_a_weight_package_has_no_revisions() -> None:
    """Whoever pins one gets that or an error."""
    with pytest.raises(SettingsError, match="not on this machine"):
        find_model_folder(MINILM, "0123456789abcdef0123456789abcdef01234567")


def test_a_model_that_is_nowhere_is_an_error_with_the_remedies() -> None:
    """Offline, the hub is not asked."""
    with pytest.raises(SettingsError, match=r"nobody/nothing.*HF_HOME"):
        find_model_folder("nobody/nothing")


@pytest.mark.parametrize("name", ["/no/such/folder", "./missing", "a/b/c", "~/missing"])
def test_a_path_that_is_not_there_is_not_taken_for_a_hub_name(name: str) -> None:
    """The error says what a name may be."""
    with pytest.raises(SettingsError, match="is not a folder"):
        find_model_folder(name)


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    """Unpickling runs code."""
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(SettingsError, match="only safetensors"):
        find_model_folder(str(tmp_path))
