"""The transformer of a model on OpenVINO, converted from torch's graph and kept in a cache."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from cordwood.errors import SettingsError
from cordwood_worker.backends.capture import capture, check_agreement, quiet, refusing
from cordwood_worker.backends.export_cache import ExportCache

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import torch

    from cordwood_worker.backends.sentence_model import SentenceModel

MODEL_NAME: Final = "model.xml"
_PACKAGES: Final = ("torch", "transformers", "openvino")
_HINTS: Final = {"fp32": "f32", "bf16": "bf16"}
_OUT_OF_MEMORY_TEXTS: Final = ("bad_alloc", "failed to allocate", "could set new shape")
"""The last is how OpenVINO says that a tensor could not grow."""


class OpenVinoTransformer:
    """Gives the last hidden state of a batch, computed in fp32 or bf16 on the CPU. Not for two threads at once."""

    def __init__(self, folder: Path, *, precision: str, threads: int) -> None:
        core = _import_openvino().Core()
        compiled = core.compile_model(
            core.read_model(str(folder / MODEL_NAME)),
            "CPU",
            {
                "INFERENCE_PRECISION_HINT": _HINTS[precision],
                "INFERENCE_NUM_THREADS": threads,
                "NUM_STREAMS": 1,
                # Each process would pin its threads to the same first cores.
                "ENABLE_CPU_PINNING": False,
            },
        )
        self._inputs = [item.get_any_name() for item in compiled.inputs]
        self._request = compiled.create_infer_request()
        self._precision = "bf16" if "bf" in compiled.get_property("INFERENCE_PRECISION_HINT").to_string() else "fp32"

    @property
    def precision(self) -> str:
        """What it computes in, `fp32` or `bf16`: OpenVINO takes fp32 where the machine has no bf16."""
        return self._precision

    def __call__(self, features: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the last hidden state, float32 of shape (rows, longest, hidden), in memory of its own.

        `features` has `input_ids`, `attention_mask` and, where the model takes them, `token_type_ids`, each int64 of
        shape (rows, longest) on the CPU; more is ignored. Raises MemoryError or RuntimeError where the runtime fails.
        """
        import torch

        arrays = {name: features[name].numpy() for name in self._inputs}
        try:
            hidden = self._request.infer(arrays, share_inputs=True, share_outputs=False)[0]
        except RuntimeError as error:
            if any(part in str(error).lower() for part in _OUT_OF_MEMORY_TEXTS):
                raise MemoryError(str(error)) from error
            raise
        return torch.from_numpy(hidden)


def load_openvino(
    model: SentenceModel, *, fingerprint: str, precision: str, threads: int, cache_dir: Path
) -> OpenVinoTransformer:
    """Return the transformer of a model on OpenVINO, converted unless the cache has it.

    The weights of `model` must be fp32 on the CPU, also for bf16: both precisions run from one entry of the cache.
    Raises SettingsError for a precision that is neither, if the extra is not installed, if the model cannot be
    converted or comes out wrong, or if the cache cannot be written.
    """
    if precision not in _HINTS:
        raise SettingsError(f"the openvino backend runs in fp32 or bf16, not in {precision}")
    _import_openvino()
    versions = "-".join(version(package) for package in _PACKAGES)
    entry = ExportCache(cache_dir).find_or_make(
        f"{fingerprint}-openvino-{versions}", lambda folder: _convert(model, folder, threads)
    )
    with refusing(model, f"loaded by OpenVINO from {entry}"):
        return OpenVinoTransformer(entry, precision=precision, threads=threads)


def _convert(model: SentenceModel, folder: Path, threads: int) -> None:
    """Convert the captured graph: from the module itself OpenVINO would trace, with each branch as the example took."""
    openvino = _import_openvino()
    program = capture(model)
    with quiet(), refusing(model, "converted for OpenVINO"):
        converted = openvino.convert_model(program)
        openvino.save_model(converted, str(folder / MODEL_NAME), compress_to_fp16=False)
        transformer = OpenVinoTransformer(folder, precision="fp32", threads=threads)
    check_agreement(model, transformer, "OpenVINO")


def _import_openvino() -> Any:
    """Import OpenVINO without its telemetry, which would report the import; SettingsError names the extra.

    A None in `sys.modules` makes the import of that package fail, and OpenVINO then does without it.
    """
    modules: dict[str, Any] = sys.modules
    modules.setdefault("openvino_telemetry", None)
    try:
        import openvino
    except ImportError as error:
        message = f"the openvino backend needs what `pip install 'cordwood[openvino]'` installs: {error}"
        raise SettingsError(message) from error
    return openvino
