"""Device and precision follow the settings, or an error or one warning says why not."""

from __future__ import annotations

import logging

import pytest

from cordwood.errors import SettingsError
from cordwood_worker.backends.placement import Placement, choose_placement
from tests.models import queue_settings


@pytest.mark.parametrize(
    ("capability", "precisions"),
    [
        ("amx_bf16", ["bf16", "fp32", "bf16", "fp32"]),
        ("avx512_bf16", ["bf16", "fp32", "bf16", "fp32"]),
        ("avx2", ["fp32", "fp32", "fp32", "fp32"]),
    ],
)
def test_precision_goes_by_what_the_processor_multiplies(
    monkeypatch: pytest.MonkeyPatch, capability: str, precisions: list[str]
) -> None:
    """For auto, fp32, bf16 and fp16; emulation would be slower than fp32."""
    import torch

    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {capability: True}, raising=False)
    wanted = ("auto", "fp32", "bf16", "fp16")
    placements = [choose_placement(queue_settings(model="m", device="cpu", precision=name)) for name in wanted]
    assert [placement.precision for placement in placements] == precisions
    assert placements[1].dtype == torch.float32


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_precision_that_the_device_lacks_is_fp32_with_one_warning(
    monkeypatch: pytest.MonkeyPatch, precision: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is no error: a worker that dies on its first job would be worse."""
    import torch

    monkeypatch.setattr(torch.cpu, "get_capabilities", dict, raising=False)
    with caplog.at_level(logging.WARNING):
        placement = choose_placement(queue_settings(model="m", device="cpu", precision=precision))
    assert placement == Placement("cpu", "fp32")
    assert len(caplog.records) == 1


def test_auto_device_is_there() -> None:
    """A GPU where there is one, else the CPU."""
    import torch

    expected = "cuda:0" if torch.cuda.is_available() else "cpu"
    assert choose_placement(queue_settings(model="m")).device == expected


@pytest.mark.parametrize("device", ["cuda:99", "toaster"])
def test_a_device_that_is_not_there_is_an_error_that_names_it(device: str) -> None:
    """At the start, not at the first batch."""
    with pytest.raises(SettingsError, match=device):
        choose_placement(queue_settings(model="m", device=device))


def test_c20_a_process_forked_after_cuda_was_used_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """With torch's own flag: it could never use the GPU, and says so before it reads a job."""
    import torch

    monkeypatch.setattr(torch.cuda, "_is_in_bad_fork", lambda: True)
    with pytest.raises(SettingsError, match="forked from one that had used CUDA"):
        choose_placement(queue_settings(model="m", device="cpu"))
