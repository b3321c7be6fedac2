"""A transformer converted to OpenVINO and run by it on the CPU, in fp32 or bf16."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final

from cordwood_worker.backends.exported import example_inputs, input_names, load_export, plain_transformer

if TYPE_CHECKING:
    from pathlib import Path

    from cordwood_worker.backends.sentence_model import SentenceModel

KIND: Final = "openvino"
FILE: Final = "model.xml"
HINTS: Final = {"fp32": "f32", "bf16": "bf16"}


class OpenVinoTransformer:
    """The first module of a model: takes padded features, adds `token_embeddings` of shape (rows, longest, hidden)."""

    def __init__(self, compiled: Any, inputs: int) -> None:
        self._compiled = compiled
        self._inputs = inputs

    def __call__(self, features: dict[str, Any]) -> dict[str, Any]:
        """Run the compiled model on the features' tensors; the hidden state is copied out of its buffer."""
        import torch

        names = ("input_ids", "attention_mask", "token_type_ids")[: self._inputs]
        hidden = self._compiled([features[name].numpy() for name in names])[0]
        return {**features, "token_embeddings": torch.from_numpy(hidden.copy())}


def load_openvino(
    model: SentenceModel, fingerprint: str, precision: str, threads: int, root: Path | None = None
) -> OpenVinoTransformer:
    """Convert a transformer with `openvino.convert_model`, or take the conversion of these weights from the cache.

    The weights are stored in fp32; `precision` is that of the computation, `fp32` or `bf16`. `root` is the folder of
    the cache, None for the default. Raises SettingsError if it cannot be converted.
    """
    examples = example_inputs(model)

    def export(folder: Path) -> None:
        import openvino

        converted = openvino.convert_model(plain_transformer(model), example_input=examples)
        openvino.save_model(converted, str(folder / FILE), compress_to_fp16=False)

    def read(folder: Path) -> OpenVinoTransformer:
        import openvino

        options = {"INFERENCE_PRECISION_HINT": HINTS[precision], "INFERENCE_NUM_THREADS": threads}
        compiled = openvino.Core().compile_model(str(folder / FILE), "CPU", options)
        return OpenVinoTransformer(compiled, len(input_names(model)))

    loaded: OpenVinoTransformer = load_export(KIND, f"{fingerprint}-{KIND}-{_version()}", export, read, root)
    return loaded


def _version() -> str:
    try:
        return version("openvino")
    except PackageNotFoundError:
        return "none"
