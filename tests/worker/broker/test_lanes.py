"""Reading lanes: entries that anybody may have written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood_worker.broker.lanes import MAX_HINT, acceptable_id, read_hint


@pytest.mark.parametrize("raw", [b"", b" ", b"a b", b"\xff\xfe", b"x" * 129, b"a\x00b", "a\u2028b".encode()])
def test_an_id_that_no_producer_could_have_written_is_no_id(raw: bytes) -> None:
    """It is never used to spell a key."""
    assert acceptable_id(raw) == ""


@given(st.binary(max_size=30))
def test_a_hint_is_a_sane_number_whatever_the_entry_says(raw: bytes) -> None:
    """It only steers how much is fetched."""
    assert 1 <= read_hint(raw) <= MAX_HINT
