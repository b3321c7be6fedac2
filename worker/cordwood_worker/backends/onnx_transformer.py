"""The transformer of a model on ONNX Runtime, exported by torch and kept in a cache."""

from __future__ import annotations

import os
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from cordwood.errors import SettingsError
from cordwood_worker.backends.capture import capture, check_agreement, quiet, refusing, sample_features
from cordwood_worker.backends.export_cache import ExportCache

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import torch

    from cordwood_worker.backends.sentence_model import SentenceModel

MODEL_NAME: Final = "model.onnx"
_PACKAGES: Final = ("torch", "transformers", "onnxscript", "onnxruntime")
_OUT_OF_MEMORY_TEXTS: Final = ("failed to allocate memory", "bad_alloc")
_FATAL: Final = 4
"""What ONNX Runtime prints at lower levels it also raises."""


class OnnxTransformer:
    """Gives the last hidden state of a batch, in fp32 on the CPU. Not for two threads at once."""

    def __init__(self, folder: Path, *, threads: int) -> None:
        runtime = _import_onnxruntime()
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = _FATAL
        # A pattern is kept for every shape that ever came, and shapes are without number.
        options.enable_mem_pattern = False
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = runtime.InferenceSession(str(folder / MODEL_NAME), options, providers=["CPUExecutionProvider"])
        self._inputs = [item.name for item in self._session.get_inputs()]

    @property
    def precision(self) -> str:
        """What it computes in."""
        return "fp32"

    def __call__(self, features: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the last hidden state, float32 of shape (rows, longest, hidden), in memory of its own.

        `features` has `input_ids`, `attention_mask` and, where the model takes them, `token_type_ids`, each int64 of
        shape (rows, longest) on the CPU; more is ignored. Raises MemoryError or RuntimeError where the runtime fails.
        """
        import torch

        arrays = {name: features[name].numpy() for name in self._inputs}
        try:
            [hidden] = self._session.run(None, arrays)
        except Exception as error:  # the runtime's exceptions have no common class
            text = str(error)
            kind = MemoryError if any(part in text.lower() for part in _OUT_OF_MEMORY_TEXTS) else RuntimeError
            raise kind(text) from error
        return torch.from_numpy(hidden)


def load_onnx(
    model: SentenceModel, *, fingerprint: str, precision: str, threads: int, cache_dir: Path
) -> OnnxTransformer:
    """Return the transformer of a model on ONNX Runtime, exported unless the cache has it.

    The weights of `model` must be fp32 on the CPU. `threads` are those of one operation. Raises SettingsError for
    another precision than fp32, if the extra is not installed, if the model cannot be exported or comes out wrong, or
    if the cache cannot be written.
    """
    if precision != "fp32":
        raise SettingsError(f"the onnx backend runs in fp32 only, not in {precision}")
    _import_onnxruntime()
    versions = "-".join(version(package) for package in _PACKAGES)
    entry = ExportCache(cache_dir).find_or_make(
        f"{fingerprint}-onnx-{versions}", lambda folder: _export(model, folder, threads)
    )
    with refusing(model, f"loaded by ONNX Runtime from {entry}"):
        return OnnxTransformer(entry, threads=threads)


def _export(model: SentenceModel, folder: Path, threads: int) -> None:
    import torch

    program = capture(model)
    with quiet(), torch.no_grad(), refusing(model, "exported to ONNX"):
        torch.onnx.export(
            program,
            kwargs=sample_features(model, 2, 8),
            f=str(folder / MODEL_NAME),
            dynamo=True,
            external_data=True,  # above 2 GB there is no other way
            verbose=False,
        )
        transformer = OnnxTransformer(folder, threads=threads)
    check_agreement(model, transformer, "ONNX Runtime")


def _import_onnxruntime() -> Any:
    """Import the runtime and look for the exporter; SettingsError names the extra.

    Version 1.32 writes a device ID and a log of events for its maker as soon as it is imported, unless this variable is
    set.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        import onnxruntime
        import onnxscript  # noqa: F401 - torch.onnx.export needs it
    except ImportError as error:
        raise SettingsError(f"the onnx backend needs what `pip install 'cordwood[onnx]'` installs: {error}") from error
    return onnxruntime
