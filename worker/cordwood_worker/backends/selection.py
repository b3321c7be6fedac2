"""Choosing how a model runs on this machine: the fastest way whose outputs are right, checked and timed at load."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from cordwood.errors import SettingsError
from cordwood_worker.backends import attention
from cordwood_worker.backends.check_rows import largest_difference, smallest_cosine, typical_batch
from cordwood_worker.backends.engine import Engine, Module
from cordwood_worker.backends.export_cache import default_cache_dir
from cordwood_worker.backends.feed import Layout, PackedFeed, PaddedFeed
from cordwood_worker.backends.linears import can_prepack, prepack, prepacking_pays
from cordwood_worker.backends.onnx_transformer import load_onnx
from cordwood_worker.backends.openvino_transformer import load_openvino
from cordwood_worker.backends.sentence_model import load_sentence_model, position_offset

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from cordwood_worker.backends.placement import Placement
    from cordwood_worker.backends.pool import BufferPool
    from cordwood_worker.backends.sentence_model import SentenceModel
    from cordwood_worker.batch import Tokens

FP32_TOLERANCE: Final = 1e-5
"""The largest difference from the library's fp32 that an fp32 engine may have, as a share of the largest number."""
EXPORTED: Final = ("onnx", "openvino")
EXPORTED_TOLERANCE: Final = 1e-4
"""The same for another runtime, which rounds elsewhere."""
LEAST_COSINE: Final = {"bf16": 0.9995, "fp16": 0.9999}
"""The smallest cosine with the fp32 output that an engine in half precision may have for any check text."""
TIMED_TOKENS: Final = 1024
TIMED_ROWS: Final = 32
ROUNDS: Final = 3
CLEARLY_FASTER: Final = 0.9

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Source:
    """Where a model comes from, and what its outputs for the check rows must be."""

    name: str
    folder: Path
    fingerprint: str
    rows: Sequence[Tokens]
    expected: NDArray[Any]


@dataclass(frozen=True, slots=True)
class Way:
    """One way of running a model with torch."""

    packs: bool
    placement: Placement
    prepacks: bool

    def __str__(self) -> str:
        kind = "packed" if self.packs else "padded"
        return f"{kind} {self.placement.precision}{' with prepacked layers' if self.prepacks else ''}"


def plain_engine(model: SentenceModel, placement: Placement, pool: BufferPool) -> Engine:
    """Return the engine that runs a model just as the library does: padded, its layers untouched."""
    feed = PaddedFeed(_layout(model), pool, placement.device)
    return Engine("padded", feed, model.modules, placement, pool, model.dim, _linears(model))


def choose_engine(source: Source, placement: Placement, backend: str, pool: BufferPool) -> Engine:
    """Return the fastest engine whose outputs are right; say in the log which, and what was not right or slower.

    `backend` is `padded`, `packed`, or `auto` for the faster of the two; `onnx` and `openvino` go to
    `exported_engine`. A precision whose drift is over its limit gives way to fp32; what fp32 itself cannot do (packing,
    prepacked layers) is left out. Raises SettingsError if packing was asked for and the model cannot be packed.
    """
    if backend in EXPORTED:
        return exported_engine(source, placement, backend, pool)
    kinds = {"auto": (True, False), "packed": (True,), "padded": (False,)}[backend]
    for precision in dict.fromkeys((placement, placement.exact)):
        ways = [_first_right(source, precision, pool, packs=packs) for packs in kinds]
        found = [engine for engine in ways if engine is not None]
        if found:
            return _fastest(source, found)
        _log.warning("model %s: no way of running in %s is right", source.name, precision.precision)
    if backend == "packed":
        raise SettingsError(f"model {source.name!r} cannot run packed: its outputs are not those of a padded batch")
    raise SettingsError(f"model {source.name!r} gives other outputs than the library's on {placement.device}")


def exported_engine(source: Source, placement: Placement, backend: str, pool: BufferPool) -> Engine:
    """Return the engine whose transformer runs in ONNX Runtime (fp32 alone) or OpenVINO (fp32 or bf16), padded.

    The first use of a model exports it, which takes seconds; later ones find it in the cache. Raises SettingsError if
    the device is not the CPU, the extra is not installed, or the model cannot be exported or gives other outputs.
    """
    import torch

    if placement.device != "cpu":
        raise SettingsError(f"backend {backend} runs on the CPU only, not on {placement.device}")
    load: Any = {"onnx": load_onnx, "openvino": load_openvino}[backend]
    fault = None
    for tried in dict.fromkeys((placement if backend == "openvino" else placement.exact, placement.exact)):
        model = load_sentence_model(source.name, source.folder, tried.exact)
        transformer = load(
            model,
            fingerprint=source.fingerprint,
            precision=tried.precision,
            threads=torch.get_num_threads(),
            cache_dir=default_cache_dir(),
        )
        feed = PaddedFeed(_layout(model), pool, tried.device)
        modules = (_as_first_module(transformer), *model.modules[1:])
        engine = Engine(backend, feed, modules, replace(tried, precision=transformer.precision), pool, model.dim)
        fault = _fault(engine, source, EXPORTED_TOLERANCE)
        if fault is None:
            _log.info("model %s: running %s in %s on the CPU, as asked for", source.name, backend, tried.precision)
            return engine
        _log.warning("model %s: not %s in %s: %s", source.name, backend, tried.precision, fault)
    raise SettingsError(f"model {source.name!r} with backend {backend} {fault}")


def _as_first_module(transformer: Any) -> Module:
    """What adds a transformer's hidden state to the features, as the library's own first module does."""

    def first(features: dict[str, Any]) -> dict[str, Any]:
        return {**features, "token_embeddings": transformer(features)}

    return first


def _first_right(source: Source, placement: Placement, pool: BufferPool, *, packs: bool) -> Engine | None:
    """Try one layout with prepacked layers if they pay, then without."""
    for prepacks in (True, False) if can_prepack(placement.device) else (False,):
        way = Way(packs, placement, prepacks)
        try:
            engine = _build(source, way, pool)
            fault = None if engine is None else _fault(engine, source)
        except Exception as error:  # noqa: BLE001 - whatever a model or an operator raises rules this way out
            engine, fault = None, f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        if engine is not None and fault is None:
            return engine
        if fault is not None:
            _log.warning("model %s: not %s: %s", source.name, way, fault)
    return None


def _build(source: Source, way: Way, pool: BufferPool) -> Engine | None:
    """Load the model anew and set it up; None where prepacking does not pay."""
    model = load_sentence_model(source.name, source.folder, way.placement)
    transformer = model.modules[0].auto_model
    layout, linears = _layout(model), _linears(model)
    if way.prepacks:
        if not linears or not prepacking_pays(max(linears, key=lambda linear: linear.weight.numel())):
            return None
        packed = prepack(transformer)
        linears = [packed[id(linear)] for linear in linears]
    device, precision = way.placement.device, way.placement.precision
    if not way.packs:
        return Engine(
            "padded", PaddedFeed(layout, pool, device), model.modules, way.placement, pool, model.dim, linears
        )
    attention.register()
    transformer.set_attn_implementation(attention.IMPLEMENTATION)
    feed = PackedFeed(layout, pool, device, precision)
    return Engine("packed", feed, model.modules, way.placement, pool, model.dim, linears)


def _fault(engine: Engine, source: Source, tolerance: float = FP32_TOLERANCE) -> str | None:
    """Compare an engine's outputs for the check rows with the library's; return what is wrong, None if nothing is."""
    values = engine.run(source.rows)
    precision = engine.placement.precision
    if precision == "fp32":
        difference = largest_difference(values, source.expected)
        return f"differs by {difference:.1e}" if difference > tolerance else None
    cosine = smallest_cosine(values, source.expected)
    return f"drifts to a cosine of {cosine:.5f}" if cosine < LEAST_COSINE[precision] else None


def _fastest(source: Source, engines: Sequence[Engine]) -> Engine:
    """Return the first engine, unless another is clearly faster for rows of near-equal length.

    The first is packed where that is right: real batches have padding that these rows do not have.
    """
    rows = typical_batch(source.rows, TIMED_TOKENS, TIMED_ROWS)
    times = shortest_times({engine.name: partial(engine.run, rows) for engine in engines})
    best = min(engines, key=lambda engine: times[engine.name])
    if times[best.name] > CLEARLY_FASTER * times[engines[0].name]:
        best = engines[0]
    shown = ", ".join(f"{name} {1000 * seconds:.1f} ms" for name, seconds in times.items())
    _log.info(
        "model %s: running %s in %s on %s (%d rows: %s)",
        *(source.name, best.name, best.placement.precision, best.placement.device, len(rows), shown),
    )
    return best


def shortest_times(calls: Mapping[str, Callable[[], object]], rounds: int = ROUNDS) -> dict[str, float]:
    """Return the shortest time of each call in seconds, taken in turn after a round that warms up.

    In turn, as a neighbour that is busy for a moment then slows all of them; the shortest, as it only ever slows.
    """
    times = dict.fromkeys(calls, float("inf"))
    for number in range(rounds + 1):
        for name, call in calls.items():
            began = perf_counter()
            call()
            if number > 0:
                times[name] = min(times[name], perf_counter() - began)
    return times


def _layout(model: SentenceModel) -> Layout:
    transformer = model.modules[0].auto_model
    return Layout(
        pad_id=model.pad_id,
        pads_left=model.pads_left,
        takes_type_ids=model.takes_type_ids,
        prompt_tokens=model.prompt_tokens,
        position_offset=position_offset(transformer),
        heads=int(getattr(transformer.config, "num_attention_heads", 1)),
        hidden=int(getattr(transformer.config, "hidden_size", 1)),
        max_tokens=model.max_tokens,
    )


def _linears(model: SentenceModel) -> list[Any]:
    """The linear layers that see every token: those of the transformer but a pooler, which sees one token a row."""
    import torch

    transformer = model.modules[0].auto_model
    pooler = getattr(transformer, "pooler", None)
    apart = set() if pooler is None else {id(module) for module in pooler.modules()}
    return [
        module for module in transformer.modules() if isinstance(module, torch.nn.Linear) and id(module) not in apart
    ]
