"""The rival that everyone has: sentence-transformers, called as its documentation shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from benchmarks.corpus import in_groups
from benchmarks.own_engine import MODEL
from cordwood_worker.backends.model_folder import find_model_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

BATCH: Final = 32
"""The library's own default, and what arrival-order rivals take at once."""


class Library:
    """`SentenceTransformer` on the same weights, in a precision (`fp32`, `bf16`, `fp16`)."""

    def __init__(self, precision: str, device: str) -> None:
        import torch
        from sentence_transformers import SentenceTransformer

        dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
        folder = str(find_model_folder(MODEL, None))
        self._model: Any = SentenceTransformer(folder, device=device, model_kwargs={"dtype": dtype})

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """All texts in one call, which sorts them by length and pads batches of 32."""
        values: NDArray[np.float32] = self._model.encode(list(texts), batch_size=BATCH, show_progress_bar=False)
        return values

    def encode_in_turn(self, texts: Sequence[str], size: int) -> NDArray[np.float32]:
        """A call for every `size` texts in order of arrival, as a worker would that knows no more texts than these."""
        return np.concatenate([self.encode(group) for group in in_groups(texts, size)])
