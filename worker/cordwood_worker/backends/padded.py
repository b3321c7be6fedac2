"""The torch backend: a batch becomes one padded matrix and runs through a sentence-transformers model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from cordwood_worker.backends import Spec
from cordwood_worker.backends.faults import device_fault
from cordwood_worker.backends.fingerprint import fingerprint
from cordwood_worker.backends.model_folder import find_model_folder
from cordwood_worker.backends.placement import choose_placement
from cordwood_worker.backends.sentence_model import load_sentence_model
from cordwood_worker.backends.tokeniser import Tokeniser
from cordwood_worker.batch import Batch, Row

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from numpy.typing import NDArray

    from cordwood.job import Input
    from cordwood.settings import QueueSettings
    from cordwood_worker.backends.placement import Placement
    from cordwood_worker.backends.sentence_model import SentenceModel
    from cordwood_worker.batch import Tokens

WARM_UP_ROWS: Final = 8


class PaddedBackend:
    """Serves embed: each row comes out as `SentenceTransformer.encode` gives it for that text alone.

    Blank texts are encoded like any other.
    """

    def __init__(self, model: SentenceModel, placement: Placement, *, name: str, model_fingerprint: str) -> None:
        self._model = model
        self._device = placement.device
        self._tokeniser = Tokeniser(
            model.tokenizer, max_tokens=model.max_tokens, pad_id=model.pad_id, prompt=model.prompt
        )
        self._spec = Spec(
            task="embed",
            model=name,
            fingerprint=model_fingerprint,
            dim=self._measure_dim(),
            max_tokens=model.max_tokens,
            precision=placement.precision,
            device=placement.device,
            backend="padded",
        )

    @classmethod
    def load(cls, queue: QueueSettings) -> Self:
        """Find the model of a queue and load it onto its device; SettingsError if that cannot be."""
        placement = choose_placement(queue)
        folder = find_model_folder(queue.model, queue.revision)
        model = load_sentence_model(queue.model, folder, placement)
        return cls(model, placement, name=queue.model, model_fingerprint=fingerprint(folder))

    @property
    def spec(self) -> Spec:
        """What it serves."""
        return self._spec

    def tokenise(self, inputs: Sequence[Input]) -> list[Tokens]:
        """Turn texts into tokens, cut where the library cuts them; ValueError for a pair."""
        return self._tokeniser.tokenise(inputs)

    def run(self, batch: Batch) -> NDArray[np.float32]:
        """Return one vector a row, shape (rows, dim), fp32 on the CPU, in memory of its own."""
        try:
            return self._forward(batch)
        except (RuntimeError, MemoryError) as error:
            fault = device_fault(error)
            if fault is None:
                raise
            raise fault from error

    def warm_up(self) -> None:
        """Run a few short rows, so that threads, kernels and allocators exist."""
        tokens = self.tokenise(["warm up"] * WARM_UP_ROWS)
        self.run(Batch(tuple(Row("warm-up", index, item, 0.0) for index, item in enumerate(tokens))))

    def _measure_dim(self) -> int:
        [tokens] = self.tokenise([""])
        return int(self.run(Batch((Row("dim", 0, tokens, 0.0),))).shape[1])

    def _forward(self, batch: Batch) -> NDArray[np.float32]:
        import torch

        first, *rest = self._model.modules
        with torch.inference_mode():
            features = first(self._features(batch))
            for name, value in features.items():
                if isinstance(value, torch.Tensor) and value.is_floating_point():
                    features[name] = value.float()
            for module in rest:
                features = module(features)
            vectors = features["sentence_embedding"][:, : self._model.dim]
            return np.array(vectors.cpu().numpy(), dtype=np.float32, copy=True)

    def _features(self, batch: Batch) -> dict[str, Any]:
        """Pad to the longest row, on the side that the model wants; attention covers each row's own length."""
        import torch

        shape = (len(batch.rows), batch.longest)
        ids = np.full(shape, self._model.pad_id, dtype=np.int64)
        attention = np.zeros(shape, dtype=np.int64)
        types = np.zeros(shape, dtype=np.int64) if self._model.takes_type_ids else None
        for index, row in enumerate(batch.rows):
            length = len(row.tokens.ids)
            span = slice(shape[1] - length, None) if self._model.pads_left else slice(length)
            ids[index, span] = row.tokens.ids
            attention[index, span] = 1
            if types is not None and row.tokens.type_ids is not None:
                types[index, span] = row.tokens.type_ids
        arrays = {"input_ids": ids, "attention_mask": attention, "token_type_ids": types}
        features: dict[str, Any] = {
            name: torch.from_numpy(values).to(self._device) for name, values in arrays.items() if values is not None
        }
        features["modality"] = "text"
        if self._model.prompt_tokens:
            features["prompt_length"] = self._model.prompt_tokens
        return features
