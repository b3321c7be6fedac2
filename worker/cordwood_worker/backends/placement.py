"""Which device a model runs on, and in which precision."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cordwood.errors import SettingsError

if TYPE_CHECKING:
    from cordwood.settings import QueueSettings

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Placement:
    """A device by torch's name, and the precision of the weights: `fp32`, `bf16` or `fp16`."""

    device: str
    precision: str

    @property
    def dtype(self) -> Any:
        """The torch dtype of the precision."""
        import torch

        return {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[self.precision]

    @property
    def exact(self) -> Placement:
        """The same device in fp32."""
        return Placement(self.device, "fp32")


def choose_placement(queue: QueueSettings) -> Placement:
    """Return where and how the queue's model runs on this machine.

    Device `auto` is the first GPU, else the CPU. Precision `auto` is bf16 where the hardware multiplies it natively
    (CUDA 8.0 and later, CPUs with AMX or AVX512-BF16), else fp32. bf16 and fp16 that the device does not have become
    fp32, with one warning. Raises SettingsError for a device that is not there, and in
    a process that was forked from one that had used CUDA.
    """
    device = _choose_device(queue.device)
    if queue.precision == "fp32":
        return Placement(device, "fp32")
    if queue.precision == "auto":
        return Placement(device, "bf16" if _has_precision(device, "bf16") else "fp32")
    if _has_precision(device, queue.precision):
        return Placement(device, queue.precision)
    _log.warning("model %s: device %s does not have %s, running in fp32", queue.model, device, queue.precision)
    return Placement(device, "fp32")


def _choose_device(name: str) -> str:
    import torch

    if getattr(torch.cuda, "_is_in_bad_fork", bool)():
        raise SettingsError("this process was forked from one that had used CUDA: start workers by spawn or exec")
    if name == "auto":
        return "cuda:0" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except Exception as error:
        raise SettingsError(f"device {name!r} is not there: {str(error).splitlines()[0]}") from error
    return str(device)


def _has_precision(device: str, precision: str) -> bool:
    """Whether the hardware multiplies this precision itself; emulating it would be slower than fp32."""
    import torch

    if device == "cpu":
        capabilities: dict[str, bool] = dict(getattr(torch.cpu, "get_capabilities", dict)())
        return precision == "bf16" and any(capabilities.get(name) for name in ("amx_bf16", "avx512_bf16"))
    if not device.startswith("cuda"):
        return False
    return precision == "fp16" or torch.cuda.is_bf16_supported(including_emulation=False)
