"""What the exports to other runtimes share: the transformer as a module of plain inputs, and failures in words."""

from __future__ import annotations

import logging
import os
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from cordwood.errors import SettingsError
from cordwood_worker.backends.export_cache import cached_export, discard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cordwood_worker.backends.sentence_model import SentenceModel

NOISY_LOGGERS: Final = ("torch.onnx", "transformers", "torch.export", "onnxscript", "onnx_ir")


def input_names(model: SentenceModel) -> tuple[str, ...]:
    """The names of a transformer's inputs, in the order in which exports take them."""
    return ("input_ids", "attention_mask", *(["token_type_ids"] if model.takes_type_ids else []))


def plain_transformer(model: SentenceModel) -> Any:
    """Return a torch module that takes the inputs one by one and returns the last hidden state alone."""
    import torch

    names = input_names(model)

    class PlainTransformer(torch.nn.Module):  # type: ignore[misc, unused-ignore]
        """The transformer without its output's record."""

        def __init__(self) -> None:
            super().__init__()
            self.transformer = model.modules[0].auto_model

        def forward(self, *inputs: Any) -> Any:
            return self.transformer(**dict(zip(names, inputs, strict=True))).last_hidden_state

    return PlainTransformer().eval()


def example_inputs(model: SentenceModel) -> tuple[Any, ...]:
    """Return a padded batch of 2 rows for tracing."""
    import torch

    ids = torch.arange(2 * 5).view(2, 5) + 3
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    return (ids, mask, torch.zeros_like(ids))[: len(input_names(model))]


def load_export(
    kind: str, name: str, export: Callable[[Path], None], read: Callable[[Path], Any], root: Path | None
) -> Any:
    """Return what `read` makes of an export, from the cache if it is there and can be read.

    Raises SettingsError if the model cannot be exported or its extra is not installed.
    """
    try:
        with exporting_quietly():
            folder = cached_export(name, export, root)
            try:
                return read(folder)
            except Exception:  # noqa: BLE001 - a damaged file raises whatever its runtime likes
                discard(folder)
                return read(cached_export(name, export, root))
    except ImportError as error:
        raise SettingsError(f"backend {kind} needs what `pip install 'cordwood[{kind}]'` installs: {error}") from error
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
        raise SettingsError(f"backend {kind} cannot take the model: {reason}") from error


@contextmanager
def exporting_quietly() -> Iterator[None]:
    """Keep what exporters warn of to themselves, and OpenVINO's converter from reporting home, while a block lasts."""
    levels = {name: logging.getLogger(name).level for name in NOISY_LOGGERS}
    before = os.environ.get("CI")
    os.environ["CI"] = "true"  # what openvino_telemetry takes as a wish not to be counted
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name in NOISY_LOGGERS:
                logging.getLogger(name).setLevel(logging.ERROR)
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
        if before is None:
            del os.environ["CI"]
        else:
            os.environ["CI"] = before
