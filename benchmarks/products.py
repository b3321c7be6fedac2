"""How much of a forward pass is its matrix products: those of the model's own linear layers, replayed beside it."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any, Final

from benchmarks.measure import timed

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.own_engine import OwnEngine
    from cordwood_worker.batch import Batch

PAIRS: Final = 20


def gemm_share(engine: OwnEngine, batch: Batch) -> float | None:
    """Return the time of the products divided by that of the forward, the median of 20 pairs in turn.

    The products are those of the same layers on as many tokens (cells, where the backend pads) in the same dtype, with
    the bias and without the activation that a layer may have fused.
    None for a backend that does not show its linear layers.
    """
    backend = engine.backend
    linears = getattr(backend, "linears", None)
    if not linears:
        return None
    products = _products(linears, batch.real_tokens if engine.packed else batch.padded_tokens, backend.dtype, engine)
    for warming in (products, lambda: backend.run(batch)):
        warming()
    return median(timed(products) / timed(lambda: backend.run(batch)) for _ in range(PAIRS))


def _products(linears: Any, tokens: int, dtype: Any, engine: OwnEngine) -> Callable[[], None]:
    """Return a call that does all products, one after the other, on tensors that are there before."""
    import torch

    torch.manual_seed(0)
    on_cuda = engine.device.startswith("cuda")
    values = {
        width: torch.randn(tokens, width, dtype=torch.float32).to(engine.device, dtype)
        for width in {linear.in_features for linear in linears}
    }

    products = [(getattr(linear, "product", linear), linear.in_features) for linear in linears]

    def multiply() -> None:
        with torch.inference_mode():
            for product, width in products:
                product(values[width])
        if on_cuda:
            torch.cuda.synchronize()

    return multiply
