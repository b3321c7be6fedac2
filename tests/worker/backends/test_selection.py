"""What is chosen is right, and what is not right is not chosen and said."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cordwood.errors import SettingsError
from cordwood_worker.backends import attention, selection
from cordwood_worker.backends.placement import Placement
from cordwood_worker.backends.pool import BufferPool
from cordwood_worker.backends.selection import choose_engine
from cordwood_worker.backends.text_backend import TextBackend
from tests.models import build_bert, build_transformer, minilm_folder, queue_settings
from tests.worker.backends.running import embed
from tests.worker.backends.test_text_backend import BLANKS, mixed_texts

if TYPE_CHECKING:
    from pathlib import Path

CPU = Placement("cpu", "fp32")
FAMILIES = ["roberta", "xlm-roberta", "distilbert", "modernbert", "electra"]


@pytest.mark.parametrize("family", FAMILIES)
def test_encoders_that_use_the_attention_interface_run_packed(tmp_path: Path, family: str) -> None:
    """Positions with an offset, rotary positions, local attention: each equal to the library's."""
    from sentence_transformers import SentenceTransformer

    folder = build_transformer(tmp_path, family)
    backend = TextBackend.load(queue_settings(model=str(folder), device="cpu", precision="fp32", backend="packed"))
    texts = [*mixed_texts(30, seed=9, long=2), *BLANKS]
    assert backend.spec.backend == "packed"
    assert np.abs(embed(backend, texts) - SentenceTransformer(str(folder), device="cpu").encode(texts)).max() <= 1e-5


def test_a_model_that_cannot_be_packed_runs_padded_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """MPNet has an attention of its own, with relative positions."""
    from sentence_transformers import SentenceTransformer

    folder = build_transformer(tmp_path, "mpnet")
    with caplog.at_level(logging.INFO):
        backend = TextBackend.load(queue_settings(model=str(folder), device="cpu", precision="fp32"))
    texts = [*mixed_texts(10, seed=10), *BLANKS]
    assert backend.spec.backend == "padded"
    assert "not packed fp32" in caplog.text
    assert np.abs(embed(backend, texts) - SentenceTransformer(str(folder), device="cpu").encode(texts)).max() <= 1e-5
    with pytest.raises(SettingsError, match="cannot run packed"):
        TextBackend.load(queue_settings(model=str(folder), device="cpu", precision="fp32", backend="packed"))


def test_attention_that_mixes_rows_up_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The check compares outputs, so it needs no knowledge of what went wrong."""

    def attend_to_all(_module: Any, query: Any, key: Any, value: Any, *_rest: Any, **_options: Any) -> Any:
        import torch

        return torch.nn.functional.scaled_dot_product_attention(query, key, value).transpose(1, 2), None

    monkeypatch.setattr(attention, "attend_packed", attend_to_all)
    backend = TextBackend.load(queue_settings(model=str(build_bert(tmp_path)), device="cpu", precision="fp32"))
    assert backend.spec.backend == "padded"
    assert "not packed" in caplog.text
    monkeypatch.undo()
    attention.register()


def test_auto_takes_the_faster_of_two_right_ways_and_says_why(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The log has the time of each."""
    with caplog.at_level(logging.INFO):
        backend = TextBackend.load(queue_settings(model=str(build_bert(tmp_path)), device="cpu", precision="fp32"))
    line = next(record.getMessage() for record in caplog.records if "running" in record.getMessage())
    assert f"running {backend.spec.backend} in fp32 on cpu" in line
    assert "packed " in line
    assert "padded " in line


def test_a_precision_that_drifts_too_far_gives_way_to_fp32(
    packed_backend: TextBackend, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With a limit that bf16 cannot keep."""
    monkeypatch.setitem(selection.LEAST_COSINE, "bf16", 0.999999)
    spec = packed_backend.spec
    rows = packed_backend.tokenise(mixed_texts(12, seed=11))
    source = selection.Source(spec.model, minilm_folder(), "", rows, packed_backend.engine.run(rows))
    engine = choose_engine(source, Placement("cpu", "bf16"), "packed", BufferPool())
    assert engine.placement == CPU
    assert "drifts to a cosine of 0.99" in caplog.text


def test_bf16_keeps_within_its_limit_of_the_library(packed_backend: TextBackend) -> None:
    """On any CPU: one without bf16 instructions emulates them, so slowly that the texts are few."""
    texts = mixed_texts(12, seed=12)
    rows = packed_backend.tokenise(texts)
    source = selection.Source("m", minilm_folder(), "", rows, packed_backend.engine.run(rows))
    for kind in ("packed", "padded"):
        engine = choose_engine(source, Placement("cpu", "bf16"), kind, BufferPool())
        assert engine.placement.precision == "bf16"
        cosines = (engine.run(rows) * source.expected).sum(axis=1)
        assert cosines.min() >= 0.9995
