"""`python -m benchmarks.gpu --output FILE`: engine, fleet and latency on a CUDA device, within 8 minutes, as one JSON.

The three are those of `python -m benchmarks`, with more texts and less time each. Exit code 2 where there is no CUDA.
"""

from __future__ import annotations

import json
import signal
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import click

from benchmarks.__main__ import leave
from benchmarks.bytecode import keep_bytecode
from benchmarks.measure import Plan, machine

if TYPE_CHECKING:
    from benchmarks.measure import Report

NAMES: Final = ("engine", "fleet", "latency")
SECONDS_EACH: Final = 140.0
"""Three of these leave a minute of the eight for starting and stopping processes."""
QUICK_SECONDS_EACH: Final = 50.0
TEXTS: Final = 16_384
QUICK_TEXTS: Final = 4_096
ROUNDS: Final = 7


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False, writable=True), required=True)
@click.option("--quick", is_flag=True, help="Less work, and noisier.")
def main(output: Path, *, quick: bool) -> None:
    """Measure on the first CUDA device, print the tables, and write all as one JSON object."""
    keep_bytecode()
    signal.signal(signal.SIGTERM, leave)
    found = cuda_device()
    if found is None:
        raise click.UsageError("torch finds no CUDA device here; on a processor run `python -m benchmarks`")
    reports: dict[str, Any] = {}
    for name in NAMES:
        report: Report = import_module(f"benchmarks.{name}").measure(plan(quick=quick))
        click.echo(report.as_text())
        reports[name] = json.loads(report.as_json())
        text = json.dumps({"machine": machine(), "device": found, "benchmarks": reports}, indent=2)
        output.write_text(text + "\n", "utf-8")


def plan(*, quick: bool) -> Plan:
    """Return what each of the three is to measure, its time counted from now."""
    return Plan(
        quick=quick,
        device="cuda:0",
        texts=QUICK_TEXTS if quick else TEXTS,
        rounds=2 if quick else ROUNDS,
        ends_s=perf_counter() + (QUICK_SECONDS_EACH if quick else SECONDS_EACH),
    )


def cuda_device() -> dict[str, Any] | None:
    """Describe the first CUDA device; None if there is none."""
    import torch

    if not torch.cuda.is_available():
        return None
    properties: Any = torch.cuda.get_device_properties(0)
    return {
        "name": properties.name,
        "memory_gb": round(properties.total_memory / 2**30, 1),
        "capability": f"{properties.major}.{properties.minor}",
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
    }


if __name__ == "__main__":
    main()
