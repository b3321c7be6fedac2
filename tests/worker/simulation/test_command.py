"""`cordwood-worker simulate` as it is called."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from cordwood_worker.cli import cli
from cordwood_worker.cost_model import Coefficients
from cordwood_worker.simulation.command import Learned

COST = ("--cost", "2e-5,1e-5,0,0.004")


def call(*arguments: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(cli, ["simulate", *arguments], env={"CORDWOOD_REDIS_URL": ""})


def as_json(*arguments: str) -> dict[str, Any]:
    """Run the command and read what it prints."""
    done = call(*arguments, "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_made_up_traffic_is_shown_for_people_and_for_programs() -> None:
    """Utilisation, padding, waits by lane, the drain and the devices that an objective takes."""
    arguments = ("--rate", "800", "--jobs", "3000", "--lanes", "1:6:3", "--objective-ms", "30", "--padded", *COST)
    found = as_json(*arguments)
    shown = call(*arguments).stdout
    assert f"{found['utilisation']:.1%}" in shown
    assert f"{found['padding']:.1%}" in shown
    assert [lane["lane"] for lane in found["lanes"]] == ["all", "high", "normal", "low"]
    assert found["devices_for_objective"] >= 1
    assert "devices for a p99 wait of 30 ms of all jobs" in shown
    assert shown.count("\n") > 12


def test_a_load_is_what_part_of_the_devices_it_says(tmp_path: Path) -> None:
    """In full batches; the settings count as for a worker."""
    found = as_json("--load", "0.5", "--jobs", "3000", "--devices", "3", *COST)
    assert found["load"] == pytest.approx(0.5, rel=0.1)
    assert found["devices"] == 3
    config = tmp_path / "config.toml"
    config.write_text('[queues.embed]\nmodel = "x"\nmax_batch_rows = 1\n', "utf-8")
    alone = as_json("--rate", "50", "--jobs", "500", "--config", str(config), *COST)
    assert alone["rows_per_batch"] == 1.0
    assert as_json("--rate", "50", "--jobs", "500", "--max-batch-rows", "1", *COST) == alone


def test_a_recording_is_run(tmp_path: Path) -> None:
    """As `cordwood queue arrivals` writes it."""
    recording = tmp_path / "arrivals.csv"
    recording.write_text("at_s,tokens,lane\n1.0,50,high\n1.5,60,low\n", "utf-8")
    found = as_json("--arrivals", str(recording), "--overhead-ms", "0", *COST)
    assert found["jobs"] == 2
    assert found["span_s"] == pytest.approx(0.5)
    beside = Learned(Coefficients(), packed=True)
    expected_s = beside.gap_s + 0.004 + 1e-5 + 55 * 2e-5 + beside.store_s
    assert found["lanes"][0]["done_p50_ms"] == pytest.approx(1000 * expected_s, rel=0.01)


def test_the_chart_is_a_picture(tmp_path: Path) -> None:
    """PNG, of a size that can be read."""
    file = tmp_path / "waits.png"
    as_json("--load", "0.5", "--jobs", "300", "--lanes", "1:1:1", "--plot", str(file), *COST)
    data = file.read_bytes()
    assert data.startswith(b"\x89PNG")
    assert len(data) > 10_000


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        *[
            (flag, value)
            for flag in ("--rate", "--load", "--tokens", "--overhead-ms", "--noise")
            for value in ("nan", "inf")
        ],
        *[("--rate", "1e-300"), ("--seed", "-1"), ("--max-tokens", "0"), ("--devices", "0"), ("--jobs", "0")],
    ],
)
def test_a_number_out_of_range_is_wrong_usage(flag: str, value: str) -> None:
    """Named with its flag."""
    done = call(*COST, flag, value)
    assert done.exit_code == 2
    assert flag in done.stderr


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--rate", "1"), "no server"),
        (COST, "--arrivals, --rate and --load"),
        ((*COST, "--rate", "1", "--load", "1"), "--arrivals, --rate and --load"),
        (("--rate", "1", "--cost", "1,2"), "four numbers"),
        (("--rate", "1", "--cost", "0,0,0,0"), "not all 0"),
        (("--rate", "1", "--cost", "1,1,1,nan"), "finite"),
        (("--rate", "1", "--cost", "1,1,1,-1"), "0 or more"),
        (("--rate", "1", "--lanes", "1:2", *COST), "--lanes"),
        (("--rate", "1", "--lanes", "0:0:0", *COST), "--lanes"),
        (("--rate", "1", "--lanes", "1e308:1e308:1", *COST), "--lanes"),
        (
            ("--rate", "9", "--jobs", "9", "--objective-ms", "9", "--objective-lane", "low", *COST),
            "no job is in lane low",
        ),
        (("--rate", "1", "--max-batch-rows", "none", *COST), "--max-batch-rows"),
    ],
)
def test_what_cannot_be_simulated_is_refused_with_the_reason(
    arguments: tuple[str, ...], why: str, tmp_path: Path
) -> None:
    """In one line, without a traceback."""
    done = call(*arguments, "--data-dir", str(tmp_path))
    assert done.exit_code == 1
    assert why in done.stderr
    assert "Traceback" not in done.output
