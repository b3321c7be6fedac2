"""A transformer exported to ONNX and run by ONNX Runtime on the CPU, in fp32."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from cordwood_worker.backends.exported import example_inputs, input_names, load_export, plain_transformer

if TYPE_CHECKING:
    from pathlib import Path

    from cordwood_worker.backends.sentence_model import SentenceModel

KIND: Final = "onnx"
FILE: Final = "model.onnx"


class OnnxTransformer:
    """The first module of a model: takes padded features, adds `token_embeddings` of shape (rows, longest, hidden)."""

    def __init__(self, session: Any, names: tuple[str, ...]) -> None:
        self._session = session
        self._names = names

    def __call__(self, features: dict[str, Any]) -> dict[str, Any]:
        """Run the session on the features' tensors, which stay where they are."""
        import torch

        inputs = {name: features[name].numpy() for name in self._names}
        [hidden] = self._session.run(None, inputs)
        return {**features, "token_embeddings": torch.from_numpy(hidden)}


def load_onnx(model: SentenceModel, fingerprint: str, threads: int, root: Path | None = None) -> OnnxTransformer:
    """Export a transformer with `torch.onnx.export(dynamo=True)`, or take the export of these weights from the cache.

    `root` is the folder of the cache, None for the default. Raises SettingsError if it cannot be exported.
    """
    names = input_names(model)

    def export(folder: Path) -> None:
        import torch

        rows, longest = torch.export.Dim("rows"), torch.export.Dim("longest")
        program: Any = torch.onnx.export(
            plain_transformer(model),
            example_inputs(model),
            dynamo=True,
            dynamic_shapes=(tuple({0: rows, 1: longest} for _ in names),),
            input_names=list(names),
            output_names=["hidden"],
            verbose=False,
        )
        program.save(str(folder / FILE), external_data=False)

    def read(folder: Path) -> OnnxTransformer:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        providers = ["CPUExecutionProvider"]
        return OnnxTransformer(onnxruntime.InferenceSession(str(folder / FILE), options, providers=providers), names)

    loaded: OnnxTransformer = load_export(KIND, f"{fingerprint}-{KIND}-{version('torch')}", export, read, root)
    return loaded
