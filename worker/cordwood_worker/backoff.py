"""How long a job waits for its next attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from random import Random

FIRST_MS: Final = 500
LONGEST_MS: Final = 60_000


def full_jitter_ms(attempt: int, random: Random) -> int:
    """Return a random delay of 0 to 500 ms times 2^(attempt - 1), capped at a minute.

    Exponential backoff with full jitter, after the AWS Architecture Blog (2015): of the usual variants it spreads
    competing retries best.
    """
    return random.randint(0, min(LONGEST_MS, FIRST_MS << min(max(0, attempt - 1), 20)))
