"""The fault backend fails exactly when it is told to."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from cordwood.errors import SettingsError
from cordwood_worker.backends import DeviceBroken, DeviceOutOfMemory
from cordwood_worker.batch import Batch, Row
from cordwood_worker.testing import EXIT_CODE, FaultBackend, FaultOptions, fault_backend, fault_vector
from tests.models import queue_settings

if TYPE_CHECKING:
    from pathlib import Path


def run(backend: FaultBackend, *texts: str) -> Any:
    """Run texts as one batch."""
    rows = tuple(Row(f"job-{i}", 0, tokens, 0.0) for i, tokens in enumerate(backend.tokenise(texts)))
    return backend.run(Batch(rows))


def make(sleeps: list[float] | None = None, **options: Any) -> FaultBackend:
    """Make a backend that notes its sleeps instead of sleeping."""
    return FaultBackend(FaultOptions.read(options), sleep=(sleeps if sleeps is not None else []).append)


def test_a_vector_tells_its_text() -> None:
    """Every text has a unit vector of its own, whatever its batch-mates are."""
    texts = ["one", "two", "", "déjà vu 😀"]
    vectors = run(make(), *texts)
    assert vectors.shape == (4, 8)
    assert vectors.dtype == np.float32
    assert np.abs(np.linalg.norm(vectors, axis=1) - 1).max() < 1e-6
    for text, vector in zip(texts, vectors, strict=True):
        assert (vector == fault_vector(text)).all()
    assert len({vector.tobytes() for vector in vectors}) == 4


def test_tokens_are_bytes_cut_to_the_limit() -> None:
    """So that a test can choose lengths."""
    short, long = make(max_tokens=5).tokenise(["é", "sixsix"])
    assert (list(short.ids), short.truncated) == ([0xC3, 0xA9], False)
    assert (bytes(long.ids), long.truncated) == (b"sixsi", True)


def test_a_pair_is_refused_when_it_is_tokenised() -> None:
    """As every embed backend does."""
    with pytest.raises(ValueError, match="pair"):
        make().tokenise([("a", "b")])


def test_bad_fails_its_batch() -> None:
    """Every batch with it, and no batch without."""
    backend = make()
    with pytest.raises(ValueError, match="cannot embed this"):
        run(backend, "good", "a BAD one")
    assert run(backend, "good").shape == (1, 8)


def test_nan_spoils_its_own_row_only() -> None:
    """The others are as ever."""
    first, second = run(make(), "NAN", "good")
    assert np.isnan(first).all()
    assert (second == fault_vector("good")).all()


def test_delays_add_up() -> None:
    """Per batch, per row, and for a slow text."""
    sleeps: list[float] = []
    backend = make(sleeps, delay_s=1, per_row_s=0.5, slow_s=10.0)
    run(backend, "a", "b")
    run(backend, "SLOW")
    assert sleeps == [2.0, 11.5]


def test_out_of_memory_depends_on_the_padded_matrix() -> None:
    """Rows times longest, so that halves may fit."""
    backend = make(oom_cells=8)
    assert run(backend, "four", "four").shape == (2, 8)
    with pytest.raises(DeviceOutOfMemory):
        run(backend, "five5", "four")


def test_a_broken_device_stays_broken() -> None:
    """The first time and ever after."""
    backend = make()
    with pytest.raises(DeviceBroken, match="device-side assert"):
        run(backend, "BROKEN")
    with pytest.raises(DeviceBroken):
        run(backend, "good")


@pytest.mark.parametrize(("marker", "code"), [("KILL", -9), ("EXIT", EXIT_CODE)])
def test_some_texts_end_the_process(marker: str, code: int) -> None:
    """By a signal that nobody can catch, or without any clean-up."""
    program = (
        "from cordwood_worker.batch import Batch, Row;"
        "from cordwood_worker.testing import FaultBackend;"
        f"b = FaultBackend(); b.run(Batch((Row('j', 0, b.tokenise(['{marker}'])[0], 0.0),)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": ":".join(sys.path)}, check=False, timeout=60
    )
    assert result.returncode == code


def test_a_batch_is_held_while_the_file_exists(tmp_path: Path) -> None:
    """The third look finds it gone."""
    hold, looks = tmp_path / "hold", 0
    hold.touch()

    def look(_seconds: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            hold.unlink()

    backend = FaultBackend(FaultOptions(hold_file=str(hold)), sleep=look)
    assert run(backend, "text").shape == (1, 8)
    assert looks == 3


def test_the_factory_reads_the_queues_options() -> None:
    """What the spec says is what the settings say."""
    model = "python:cordwood_worker.testing:fault_backend"
    backend = fault_backend(queue_settings(model=model, options={"dim": 5, "max_tokens": 9}))
    assert (backend.spec.dim, backend.spec.max_tokens, backend.spec.model) == (5, 9, model)


@pytest.mark.parametrize(
    ("options", "message"), [({"dimm": 3}, "'dimm' is not one of"), ({"dim": "3"}, "dim = '3'"), ({"dim": True}, "dim")]
)
def test_wrong_options_are_named(options: dict[str, Any], message: str) -> None:
    """A typo must not make a test pass for the wrong reason."""
    with pytest.raises(SettingsError, match=message):
        FaultOptions.read(options)
