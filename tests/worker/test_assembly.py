"""Putting rows together into results."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cordwood.job import Payload
from cordwood.result import decode_outputs
from cordwood_worker.assembly import Assembly
from cordwood_worker.backends import Spec
from cordwood_worker.batch import Row, RowFailure, RowOutput, Tokens
from cordwood_worker.entry import Attempt, Entry

SPEC = Spec(
    task="embed",
    model="model",
    fingerprint="print",
    dim=2,
    max_tokens=16,
    precision="fp32",
    device="cpu",
    backend="fault",
)


def expect(assembly: Assembly, job_id: str, rows: int, *, truncated: bool = False) -> list[Row]:
    """Begin a job and return its rows."""
    entry = Entry("normal", "1-0", job_id, 1, 0.0)
    tokens = [Tokens([1] * (index + 1), truncated=truncated) for index in range(rows)]
    assembly.expect(
        Attempt(entry, f"token of {job_id}", 1, suspect=False, payload=b""),
        Payload(("x",), None, {"key": job_id}),
        tokens,
    )
    return [Row(job_id, index, item, 0.0) for index, item in enumerate(tokens)]


def output(row: Row) -> RowOutput:
    """An output that says whose it is."""
    return RowOutput(row, np.array([sum(row.job_id.encode()), row.index], dtype=np.float32))


@given(st.data())
def test_each_job_gets_its_own_rows_in_order_however_they_come(data: st.DataObject) -> None:
    """Rows of several jobs may come in any order and in any cut."""
    assembly = Assembly(SPEC, 10_000)
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=6))
    rows = [row for number, size in enumerate(sizes) for row in expect(assembly, f"job-{number}", size)]
    shuffled = data.draw(st.permutations(rows))
    cut = data.draw(st.integers(0, len(shuffled)))
    ended = [*assembly.add(map(output, shuffled[:cut])).done, *assembly.add(map(output, shuffled[cut:])).done]
    assert sorted(item.attempt.job_id for item in ended) == sorted(f"job-{number}" for number in range(len(sizes)))
    for item in ended:
        job_id = item.attempt.job_id
        outputs = decode_outputs(item.result, max_bytes=10_000)
        size = sizes[int(job_id.removeprefix("job-"))]
        assert outputs.values.tolist() == [[sum(job_id.encode()), index] for index in range(size)]
        assert outputs.tokens == tuple(range(1, size + 1))
        assert outputs.metadata == {"key": job_id}


def test_one_bad_row_fails_its_job_and_names_the_input() -> None:
    """Once; the rows that come later belong to nobody."""
    assembly = Assembly(SPEC, 10_000)
    first, second, third = expect(assembly, "job", 3)
    ended = assembly.add([output(first), RowFailure(second, "ValueError", "no")])
    assert [(fault.code, fault.text) for fault in ended.failed] == [("ValueError", "input 1: no")]
    late = assembly.add([output(third), RowFailure(second, "ValueError", "no")])
    assert (late.done, late.failed, late.retried) == ([], [], [])


def test_a_transient_failure_is_for_another_attempt() -> None:
    """The row was not at fault."""
    assembly = Assembly(SPEC, 10_000)
    (row,) = expect(assembly, "job", 1)
    ended = assembly.add([RowFailure(row, "bad-backend", "shape", transient=True)])
    assert [fault.attempt.job_id for fault in ended.retried] == ["job"]


def test_a_result_over_the_limit_fails_instead_of_being_stored() -> None:
    """The limit is the worker's `max_result_bytes`."""
    assembly = Assembly(SPEC, 100)
    rows = expect(assembly, "job", 50)
    ended = assembly.add(map(output, rows))
    assert [fault.code for fault in ended.failed] == ["bad-result"]
    assert "limit of 100" in ended.failed[0].text


def test_a_result_says_which_inputs_were_cut() -> None:
    """By their positions."""
    assembly = Assembly(SPEC, 10_000)
    rows = expect(assembly, "job", 2, truncated=True)
    (done,) = assembly.add(map(output, rows)).done
    assert decode_outputs(done.result, max_bytes=10_000).truncated == (0, 1)
