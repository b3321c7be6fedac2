"""ONNX Runtime and OpenVINO as backends of a worker give the library's vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from cordwood.errors import SettingsError
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
@pytest.mark.parametrize("family", ["bert", "roberta"])
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
