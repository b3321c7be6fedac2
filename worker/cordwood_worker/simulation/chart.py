"""A chart of wait against load, as PNG. It needs matplotlib: the extra `plot`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cordwood.errors import CordwoodError
from cordwood_worker.simulation.report import ALL

if TYPE_CHECKING:
    from pathlib import Path

    from cordwood_worker.simulation.report import FleetReport

LOADS: Final = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 1.1]
LEAST_MS: Final = 0.01
"""A logarithmic axis has no 0."""


def draw(reports: list[FleetReport], file: Path) -> None:
    """Draw the waits of each lane by load; raises CordwoodError where matplotlib is not installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise CordwoodError("a chart needs matplotlib: pip install 'cordwood[plot]'") from error
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    lanes = [lane.lane for lane in reports[0].lanes if lane.lane != ALL]
    for lane in lanes if len(lanes) > 1 else [ALL]:
        found = [next(each for each in report.lanes if each.lane == lane) for report in reports]
        loads = [report.load for report in reports]
        (line,) = axes.plot(loads, [max(LEAST_MS, each.wait_p99_ms) for each in found], label=f"{lane}, 99 %")
        median = [max(LEAST_MS, each.wait_p50_ms) for each in found]
        axes.plot(loads, median, linestyle="--", color=line.get_color(), label=f"{lane}, median")
    axes.set_yscale("log")
    axes.set_xlabel("load: work that comes, as a part of what the devices can do in full batches")
    axes.set_ylabel("wait until the batch begins, in ms")
    axes.set_title(f"{reports[0].jobs} jobs on {reports[0].devices} device(s)")
    axes.grid(which="both", alpha=0.3)
    axes.legend()
    figure.savefig(file, format="png", dpi=120)
