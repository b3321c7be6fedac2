"""Reading lanes: shares, and entries that anybody may have written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.keys import AGAIN, LANES
from cordwood_worker.broker.lanes import MAX_HINT, acceptable_id, read_hint, shares


@given(st.integers(4, 10_000))
def test_shares_keep_to_the_room_and_starve_nobody(room: int) -> None:
    """A quarter at most for `again`; every lane gets something; high gets the most."""
    counts = shares(room)
    assert sum(counts.values()) <= room + len(LANES)
    assert counts[AGAIN] <= max(1, room // 4)
    assert min(counts.values()) >= 1
    assert counts["high"] >= counts["normal"] >= counts["low"]


@pytest.mark.parametrize("raw", [b"", b" ", b"a b", b"\xff\xfe", b"x" * 129, b"a\x00b", "a\u2028b".encode()])
def test_an_id_that_no_producer_could_have_written_is_no_id(raw: bytes) -> None:
    """It is never used to spell a key."""
    assert acceptable_id(raw) == ""


@given(st.binary(max_size=30))
def test_a_hint_is_a_sane_number_whatever_the_entry_says(raw: bytes) -> None:
    """It only steers how much is fetched."""
    assert 1 <= read_hint(raw) <= MAX_HINT
