"""OpenVINO gives what torch gives, from a cache, and says nothing to anybody."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cordwood.errors import SettingsError
from cordwood_worker.backends.openvino_transformer import OpenVinoTransformer, load_openvino
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
    importlib.util.find_spec("openvino") is None, reason="the extra [openvino] is not installed"
)

TEXTS = ["", "wood", "logs cut to one length and stacked tight", "a longer text about wood, " * 60]


def load(model: SentenceModel, cache_dir: Path, **fields: Any) -> OpenVinoTransformer:
    """Load with the settings of a test, unless told otherwise."""
    settings: dict[str, Any] = {"fingerprint": "f" * 16, "precision": "fp32", "threads": 1, **fields}
    return load_openvino(model, cache_dir=cache_dir, **settings)


@pytest.mark.parametrize("family", TRIED)
def test_each_family_of_models_comes_out_as_on_torch(family: str, tmp_path: Path) -> None:
    """Any number of rows and any length, whatever was converted with."""
    model = build_family(family)
    assert greatest_difference(model, load(model, tmp_path)) <= 1e-4


def test_minilm_gives_the_librarys_vectors(library: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """To 1e-4, cut texts too; nothing is printed; bf16 runs from the same entry, as near as bf16 is."""
    model = load_minilm()
    transformer = load(model, tmp_path)
    assert capfd.readouterr() == ("", "")
    expected = library.encode(TEXTS)
    assert transformer.precision == "fp32"
    assert np.abs(encode(model, transformer, TEXTS) - expected).max() <= 1e-4
    [entry] = tmp_path.iterdir()
    made_at = (entry / "model.xml").stat().st_mtime_ns
    quick = load(wrap(build_family("bert").modules[0].auto_model), tmp_path, precision="bf16")
    assert quick.precision in ("bf16", "fp32")
    assert (encode(model, quick, TEXTS) * expected).sum(axis=1).min() >= 0.9995
    assert (entry / "model.xml").stat().st_mtime_ns == made_at


def test_a_model_that_comes_out_wrong_is_refused(tmp_path: Path) -> None:
    """OpenVINO 2026.4 gives NaN for a causal model padded on the left: its padding sees nothing at all."""
    with pytest.raises(SettingsError, match=r"Qwen3Model of .* comes out wrong on OpenVINO"):
        load(build_family("qwen3", pads_left=True), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_cache_is_converted_anew(tmp_path: Path) -> None:
    """No worker runs with weights that changed on the disk."""
    model = build_family("distilbert")
    load(model, tmp_path)
    [entry] = tmp_path.iterdir()
    damage(entry / "model.bin")
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


def test_views_into_a_larger_buffer_are_read_right(tmp_path: Path) -> None:
    """Rows that do not lie one behind the other."""
    import torch

    from cordwood_worker.backends.capture import sample_features

    model = build_family("distilbert")
    transformer = load(model, tmp_path)
    features = sample_features(model, 3, 9)
    views = {name: torch.zeros(6, 20, dtype=torch.int64)[::2, 4:13] for name in features}
    for name, view in views.items():
        view.copy_(features[name])
    assert transformer(views).equal(transformer(features))


def test_another_precision_is_refused(tmp_path: Path) -> None:
    """Before anything is converted."""
    with pytest.raises(SettingsError, match="fp32 or bf16"):
        load(build_family("bert"), tmp_path, precision="fp16")


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that installs it."""
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(SettingsError, match=r"cordwood\[openvino\]"):
        load(build_family("bert"), tmp_path)


def test_the_runtime_keeps_no_telemetry(tmp_path: Path) -> None:
    """It would begin with an ID in the home folder; in CI it keeps none anyway, so that this is not to look like CI."""
    program = "from cordwood_worker.backends.openvino_transformer import _import_openvino as f; f()"
    inherited = {name: value for name, value in os.environ.items() if name not in {"CI", "TF_BUILD", "JENKINS_URL"}}
    environment = {**inherited, "HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    assert list(tmp_path.rglob("*")) == []
