"""The heap that forgets lazily, against a plain dict."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cordwood_worker.ordered import SLACK, Ordered


@given(st.lists(st.one_of(st.floats(0, 9), st.integers(0, 40)), max_size=400))
def test_the_first_is_the_least_of_those_that_are_left(script: list[float | int]) -> None:
    """A float adds a number with that key, an integer removes one; what is kept is bounded by what is in it."""
    ordered, keys = Ordered(), dict[int, float]()
    for number, step in enumerate(script):
        if isinstance(step, float):
            ordered.add(number, step)
            keys[number] = step
        else:
            gone = list(keys)[step] if step < len(keys) else -1
            ordered.remove(gone)
            keys.pop(gone, None)
        assert len(ordered) == len(keys)
        assert ordered.first() == min(((key, number) for number, key in keys.items()), default=None)
        assert len(ordered._heap) <= 2 * len(keys) + SLACK + 1
