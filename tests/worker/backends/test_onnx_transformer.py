"""ONNX Runtime gives what torch gives, from a cache, and says nothing to anybody."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cordwood.errors import SettingsError
from cordwood_worker.backends.onnx_transformer import OnnxTransformer, load_onnx
from tests.worker.backends.families import (
    TRIED,
    build_family,
    damage,
    encode,
    greatest_difference,
    load_minilm,
    wrap,
)

if TYPE_CHECKING:
    from pathlib import Path

    from cordwood_worker.backends.sentence_model import SentenceModel

# Not importorskip, which would import it before its telemetry is off.
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("onnxruntime") is None, reason="the extra [onnx] is not installed"
)

TEXTS = ["", "wood", "logs cut to one length and stacked tight", "a longer text about wood, " * 60]


def load(model: SentenceModel, cache_dir: Path, **fields: Any) -> OnnxTransformer:
    """Load with the settings of a test, unless told otherwise."""
    settings: dict[str, Any] = {"fingerprint": "f" * 16, "precision": "fp32", "threads": 1, **fields}
    return load_onnx(model, cache_dir=cache_dir, **settings)


@pytest.mark.parametrize("family", TRIED)
def test_each_family_of_models_comes_out_as_on_torch(family: str, tmp_path: Path) -> None:
    """Any number of rows and any length, whatever was exported with."""
    model = build_family(family, pads_left=family == "qwen3")
    assert greatest_difference(model, load(model, tmp_path)) <= 1e-4


def test_minilm_gives_the_librarys_vectors(library: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """To 1e-4, cut texts too; the export prints nothing, and a second worker has it from the cache as it is."""
    model = load_minilm()
    transformer = load(model, tmp_path)
    assert capfd.readouterr() == ("", "")
    vectors = encode(model, transformer, TEXTS)
    assert transformer.precision == "fp32"
    assert np.abs(vectors - library.encode(TEXTS)).max() <= 1e-4
    [entry] = tmp_path.iterdir()
    made_at = (entry / "model.onnx").stat().st_mtime_ns
    again = load(wrap(build_family("bert").modules[0].auto_model), tmp_path)
    assert np.array_equal(encode(model, again, TEXTS), vectors)
    assert (entry / "model.onnx").stat().st_mtime_ns == made_at


def test_a_damaged_cache_is_exported_anew(tmp_path: Path) -> None:
    """No worker runs with weights that changed on the disk."""
    model = build_family("distilbert")
    load(model, tmp_path)
    [entry] = tmp_path.iterdir()
    damage(entry / "model.onnx.data")
    assert greatest_difference(model, load(model, tmp_path)) <= 1e-4


def test_a_result_is_not_overwritten_by_the_next(tmp_path: Path) -> None:
    """Nor does it change with the inputs, which the caller uses again."""
    from cordwood_worker.backends.capture import sample_features

    model = build_family("distilbert")
    transformer = load(model, tmp_path)
    features = sample_features(model, 3, 9)
    first = transformer(features)
    kept = first.clone()
    features["input_ids"].add_(1)
    transformer(features)
    assert first.equal(kept)


def test_what_the_runtime_raises_is_a_runtime_error(tmp_path: Path) -> None:
    """Its own exceptions are of no class that a worker knows."""
    from cordwood_worker.backends.capture import sample_features

    model = build_family("distilbert")
    transformer = load(model, tmp_path)
    features = sample_features(model, 1, 5)
    features["input_ids"] += 10_000
    with pytest.raises(RuntimeError, match="ONNXRuntimeError"):
        transformer(features)


def test_another_precision_is_refused(tmp_path: Path) -> None:
    """Before anything is exported."""
    with pytest.raises(SettingsError, match="fp32 only"):
        load(build_family("bert"), tmp_path, precision="bf16")


@pytest.mark.parametrize("package", ["onnxruntime", "onnxscript"])
def test_a_missing_extra_is_named(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of its packages it is."""
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SettingsError, match=r"cordwood\[onnx\]"):
        load(build_family("bert"), tmp_path)


def test_the_runtime_keeps_no_telemetry(tmp_path: Path) -> None:
    """It would begin with a device ID in the home folder."""
    program = "from cordwood_worker.backends.onnx_transformer import _import_onnxruntime as f; f()"
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("ORT_", "XDG_"))}
    environment = {**inherited, "HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    assert list(tmp_path.rglob("*")) == []
