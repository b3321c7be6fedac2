"""When jobs come, how long they are and in which lane: recorded or made up."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING, Final, Self

import numpy as np

from cordwood.errors import InvalidInput
from cordwood.keys import LANES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

COLUMNS: Final = ("at_s", "tokens", "lane")
MOST_S: Final = 1e11
MOST_TOKENS: Final = 1_000_000
SPREAD: Final = 0.7
"""The standard deviation of the logarithm of lengths that are made up: English sentences and paragraphs mixed."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Jobs in the order of their arrival.

    `at_s` (float64, shape (jobs,)) rises; `tokens` (int64) is at least 1; `lanes` (uint8) indexes `LANES`.
    """

    at_s: NDArray[np.float64]
    tokens: NDArray[np.int64]
    lanes: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.at_s)

    @property
    def span_s(self) -> float:
        """The time from the first arrival to the last."""
        return float(self.at_s[-1] - self.at_s[0])

    def faster(self, factor: float) -> Self:
        """The same jobs at so many times their rate."""
        return type(self)(self.at_s / factor, self.tokens, self.lanes)


def read_arrivals(lines: Iterable[str]) -> Arrivals:
    """Read CSV with the columns `at_s`, `tokens` and, if it likes, `lane`; lines need not be in order of time.

    Raises InvalidInput, naming the line, for what is not a finite time, 1 or more tokens and one of the lanes.
    """
    reader = csv.DictReader(lines)
    try:
        names = reader.fieldnames or []
        if not {"at_s", "tokens"} <= set(names) <= set(COLUMNS):
            raise InvalidInput(f"arrivals need the columns {', '.join(COLUMNS)} (lane may be left out), not {names}")
        rows = [_read_row(row, reader.line_num) for row in reader]
    except UnicodeDecodeError as error:
        raise InvalidInput(f"the arrivals are not UTF-8 text: {error}") from None
    if not rows:
        raise InvalidInput("arrivals have a heading and no line")
    at_s, tokens, lanes = zip(*sorted(rows), strict=True)
    return Arrivals(np.array(at_s), np.array(tokens, np.int64), np.array(lanes, np.uint8))


def make_arrivals(
    *, jobs: int, rate: float, mean_tokens: float, max_tokens: int, lane_parts: Sequence[float], seed: int
) -> Arrivals:
    """Make up Poisson arrivals of `rate` jobs a second with log-normal lengths of this mean, cut at `max_tokens`.

    `lane_parts` are the parts of the jobs that go to high, normal and low, in any unit.
    """
    random = np.random.default_rng(seed)
    centre = log(mean_tokens) - SPREAD**2 / 2
    lengths = np.exp(random.normal(centre, SPREAD, jobs)).round()
    parts = np.array(lane_parts, float)
    return Arrivals(
        at_s=np.cumsum(random.exponential(1 / rate, jobs)),
        tokens=np.clip(lengths, 1, max_tokens).astype(np.int64),
        lanes=random.choice(len(LANES), jobs, p=parts / parts.sum()).astype(np.uint8),
    )


def _read_row(row: dict[str, str], line: int) -> tuple[float, int, int]:
    try:
        at_s, tokens, lane = float(row["at_s"]), int(row["tokens"]), row.get("lane") or "normal"
    except (TypeError, ValueError):
        raise InvalidInput(
            f"line {line} of the arrivals: {row} is not a time in seconds and a number of tokens"
        ) from None
    if not (abs(at_s) < MOST_S and 1 <= tokens <= MOST_TOKENS and lane in LANES and None not in row):
        limits = f"a time below {MOST_S:g} s, 1 to {MOST_TOKENS} tokens, one of {LANES}"
        raise InvalidInput(f"line {line} of the arrivals: {row} needs {limits}")
    return at_s, tokens, LANES.index(lane)
