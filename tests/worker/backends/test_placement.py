"""Device and precision follow the settings, or an error or one warning says why not."""

from __future__ import annotations

import logging

import pytest

from cordwood.errors import SettingsError
from cordwood_worker.backends.placement import Placement, choose_placement
from tests.models import queue_settings


@pytest.mark.parametrize("precision", ["auto", "fp32"])
def test_auto_precision_is_fp32(precision: str) -> None:
    """And torch's dtype says the same."""
    import torch

    placement = choose_placement(queue_settings(model="m", device="cpu", precision=precision))
    assert placement == Placement("cpu", "fp32")
    assert placement.dtype == torch.float32


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_precision_that_the_device_lacks_is_fp32_with_one_warning(
    precision: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The CPU path runs in fp32."""
    with caplog.at_level(logging.WARNING):
        placement = choose_placement(queue_settings(model="m", device="cpu", precision=precision))
    assert placement.precision == "fp32"
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
