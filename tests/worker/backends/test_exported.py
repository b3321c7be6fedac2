"""ONNX Runtime and OpenVINO give the library's vectors; exports are cached whole or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from cordwood.errors import SettingsError
from cordwood_worker.backends.export_cache import WHOLE, cached_export
from cordwood_worker.backends.selection import EXPORTED
from cordwood_worker.backends.text_backend import TextBackend
from tests.models import build_bert, build_transformer, queue_settings
from tests.worker.backends.running import embed
from tests.worker.backends.test_text_backend import BLANKS, mixed_texts

if TYPE_CHECKING:
    from pathlib import Path

MODULES = {"onnx": "onnxruntime", "openvino": "openvino"}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test finds or leaves an export in the user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.timeout(180)
@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert"])
@pytest.mark.parametrize("backend", EXPORTED)
def test_an_exported_model_gives_the_librarys_vectors(tmp_path: Path, backend: str, family: str) -> None:
    """To 1e-4, for batches of any shape, and again from the cache."""
    from sentence_transformers import SentenceTransformer

    pytest.importorskip(MODULES[backend])
    folder = build_bert(tmp_path) if family == "bert" else build_transformer(tmp_path, family)
    texts = [*mixed_texts(20, seed=21, long=1), *BLANKS]
    expected = SentenceTransformer(str(folder), device="cpu").encode(texts)
    for _ in range(2):
        loaded = TextBackend.load(queue_settings(model=str(folder), device="cpu", precision="fp32", backend=backend))
        assert (loaded.spec.backend, loaded.spec.precision) == (backend, "fp32")
        assert np.abs(embed(loaded, texts, rows=7) - expected).max() <= 1e-4
    assert len(list((tmp_path / "cache" / "cordwood").iterdir())) == 1


def test_a_damaged_export_is_made_anew(tmp_path: Path) -> None:
    """A full disk or a killed copy must not keep a worker from starting for good."""
    pytest.importorskip("openvino")
    queue = queue_settings(model=str(build_bert(tmp_path)), device="cpu", precision="fp32", backend="openvino")
    expected = embed(TextBackend.load(queue), ["text"])
    (folder,) = (tmp_path / "cache" / "cordwood").iterdir()
    (folder / "model.xml").write_text("<")
    assert np.abs(embed(TextBackend.load(queue), ["text"]) - expected).max() <= 1e-6


def test_a_device_that_is_not_the_cpu_is_refused(padded_backend: TextBackend) -> None:
    """With a sentence, before anything is exported."""
    from cordwood_worker.backends.placement import Placement
    from cordwood_worker.backends.pool import BufferPool
    from cordwood_worker.backends.selection import Source, choose_engine
    from tests.models import minilm_folder

    rows = padded_backend.tokenise(["a"])
    source = Source("m", minilm_folder(), "f", rows, padded_backend.engine.run(rows))
    with pytest.raises(SettingsError, match="runs on the CPU only, not on cuda:0"):
        choose_engine(source, Placement("cuda:0", "fp32"), "onnx", BufferPool())


def test_a_folder_has_its_name_only_when_it_is_whole(tmp_path: Path) -> None:
    """What fails leaves nothing; what is there is not made again; what was left half is replaced."""
    made: list[Path] = []

    def fail(folder: Path) -> None:
        (folder / "part").touch()
        raise ValueError("no")

    def export(folder: Path) -> None:
        made.append(folder)
        (folder / "model").touch()

    with pytest.raises(ValueError, match="no"):
        cached_export("m", fail, tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "m").mkdir()
    for _ in range(2):
        folder = cached_export("m", export, tmp_path)
        assert folder == tmp_path / "m"
        assert {path.name for path in folder.iterdir()} == {"model", WHOLE}
    assert len(made) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_of_two_workers_that_export_at_once_one_wins(tmp_path: Path) -> None:
    """And the other takes what that one made."""

    def export_twice(folder: Path) -> None:
        cached_export("m", lambda inner: (inner / "first").touch(), tmp_path)
        (folder / "second").touch()

    folder = cached_export("m", export_twice, tmp_path)
    assert (folder / "first").is_file()
    assert not (folder / "second").exists()
