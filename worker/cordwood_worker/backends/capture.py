"""The graph of a model's transformer, captured once by torch.export, for runtimes other than torch."""

from __future__ import annotations

import logging
import warnings
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

from cordwood.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import torch

    from cordwood_worker.backends.sentence_model import SentenceModel

CAPTURE_SHAPE: Final = (2, 8)
"""Any sizes but 0 and 1, which torch.export takes for constants."""
CHECK_SHAPES: Final = ((3, 13), (1, 1), (5, 7))
MAX_DIFFERENCE: Final = 1e-4
"""Between the hidden states of torch and of a runtime, both in fp32, relative where the states are larger than 1."""
_NOISY_LOGGERS: Final = ("torch.onnx", "torch.onnx._internal.exporter._registration", "onnxscript", "onnx_ir")


def describe(model: SentenceModel) -> str:
    """Return what a message calls the transformer of a model."""
    transformer = model.modules[0].auto_model
    return f"{type(transformer).__name__} of {transformer.config.name_or_path or 'no folder'}"


def capture(model: SentenceModel) -> Any:
    """Return the transformer as a torch.export.ExportedProgram that gives the last hidden state of any batch.

    Its inputs are those of the tokenizer, by name, with any number of rows and any length. Raises ValueError for
    weights that are not fp32 on the CPU, which no cache must hold, and SettingsError if torch cannot capture it.
    """
    import torch

    transformer = model.modules[0].auto_model
    wrong = {(p.dtype, p.device.type) for p in transformer.parameters()} - {(torch.float32, "cpu")}
    if wrong:
        raise ValueError(f"{describe(model)} is exported in fp32 from the CPU only, not from {wrong}")
    features = sample_features(model, *CAPTURE_SHAPE)
    sizes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    with quiet(), _without_cache(transformer.config), torch.no_grad(), refusing(model, "captured by torch.export"):
        module = _hidden_state_module(transformer)
        return torch.export.export(
            module, (), kwargs=features, dynamic_shapes=dict.fromkeys(features, sizes), strict=False
        )


def sample_features(model: SentenceModel, rows: int, longest: int) -> dict[str, torch.Tensor]:
    """Return made-up inputs of a transformer, int64 of shape (rows, longest); each row is shorter than the one before.

    Padding is on the side that the model wants, and no row is empty.
    """
    import torch

    vocabulary = model.modules[0].auto_model.get_input_embeddings().num_embeddings
    lengths = torch.tensor([max(1, longest - 3 * row) for row in range(rows)]).unsqueeze(1)
    places = torch.arange(longest).unsqueeze(0)
    attended = places >= longest - lengths if model.pads_left else places < lengths
    ids = (torch.arange(rows * longest).reshape(rows, longest) * 7919 + 11) % vocabulary
    ids = torch.where(ids == model.pad_id, (ids + 1) % vocabulary, ids)
    features = {
        "input_ids": torch.where(attended, ids, model.pad_id),
        "attention_mask": attended.to(torch.int64),
    }
    if model.takes_type_ids:
        features["token_type_ids"] = torch.zeros_like(ids)
    return features


def check_agreement(
    model: SentenceModel, transformer: Callable[[Mapping[str, torch.Tensor]], torch.Tensor], runtime: str
) -> None:
    """Raise SettingsError unless a runtime in fp32 gives what torch gives, for rows of several lengths and shapes.

    A graph may be captured without an error and still be wrong: a branch taken once and for all, a mask lost.
    """
    import torch

    for shape in CHECK_SHAPES:
        features = sample_features(model, *shape)
        with torch.inference_mode():
            wanted = model.modules[0].auto_model(**features).last_hidden_state
            attended = features["attention_mask"].bool()
            expected, given = wanted[attended], transformer(features)[attended]
            limit = MAX_DIFFERENCE * max(1.0, float(expected.abs().max()))
            difference = float((expected - given).abs().max())
        if not difference <= limit:  # also where it is NaN
            raise SettingsError(
                f"{describe(model)} comes out wrong on {runtime}: hidden states of shape {shape} differ by "
                f"{difference:.2g} from torch's, {limit:.2g} is allowed"
            )


@contextmanager
def refusing(model: SentenceModel, action: str) -> Iterator[None]:
    """Turn whatever an exporter raises into a SettingsError that names the model, what failed and why."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:500]
        raise SettingsError(f"{describe(model)} cannot be {action}: {type(error).__name__}: {reason}") from error


@contextmanager
def quiet() -> Iterator[None]:
    """Hold back what exporters warn of in their own code, and their progress; errors are raised all the same."""
    with ExitStack() as stack:
        for name in _NOISY_LOGGERS:
            logger = logging.getLogger(name)
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.ERROR)
        stack.enter_context(warnings.catch_warnings())
        # torch 2.13 pickles a part of its own graphs in which it asks a question that it deprecates.
        warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)` is deprecated", FutureWarning)
        yield


@contextmanager
def _without_cache(config: Any) -> Iterator[None]:
    """Have a decoder build no cache of keys and values, which a batch never reads again and no runtime takes."""
    before = getattr(config, "use_cache", None)
    if before:
        config.use_cache = False
    try:
        yield
    finally:
        if before:
            config.use_cache = before


def _hidden_state_module(transformer: Any) -> Any:
    import torch

    class HiddenState(torch.nn.Module):
        """The transformer with one output in place of a record of several."""

        def __init__(self) -> None:
            super().__init__()
            self.transformer = transformer

        def forward(
            self,
            input_ids: torch.Tensor,
            attention_mask: torch.Tensor,
            token_type_ids: torch.Tensor | None = None,
        ) -> Any:
            types = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
            return self.transformer(input_ids=input_ids, attention_mask=attention_mask, **types).last_hidden_state

    return HiddenState().eval()
