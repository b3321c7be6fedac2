"""A queue's model names its backend; whatever is wrong with the name is said at the start."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from cordwood.errors import SettingsError
from cordwood_worker.backends import load_backend
from cordwood_worker.testing import FaultBackend
from tests.models import build_bert, queue_settings

if TYPE_CHECKING:
    from pathlib import Path

    from cordwood.settings import QueueSettings


def make_nothing(queue: QueueSettings) -> object:
    """Be a factory of something that is not a backend."""
    assert queue.model
    return object()


def fail(queue: QueueSettings) -> object:
    """Be a factory that fails."""
    raise RuntimeError(f"no such weights: {queue.model}")


def test_a_python_name_is_what_its_factory_makes() -> None:
    """The queue's settings reach the factory."""
    backend = load_backend(queue_settings(model="python:cordwood_worker.testing:fault_backend", options={"dim": 3}))
    assert isinstance(backend, FaultBackend)
    assert backend.spec.dim == 3


def test_a_folder_is_a_torch_model(tmp_path: Path) -> None:
    """Any other name is a model of the library."""
    backend = load_backend(queue_settings(model=str(build_bert(tmp_path)), device="cpu"))
    assert backend.spec.backend in {"packed", "padded"}


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("python:", "not of the form"),
        ("python:cordwood_worker.testing", "not of the form"),
        ("python:no_such_module:make", "importing no_such_module failed: ModuleNotFoundError"),
        ("python:cordwood_worker.testing:nothing", "has no callable nothing"),
        ("python:cordwood_worker.testing:BAD", "has no callable BAD"),
        ("python:tests.worker.backends.test_loading:make_nothing", "lacks spec, tokenise, run, warm_up"),
        ("python:tests.worker.backends.test_loading:fail", "calling fail failed: RuntimeError: no such weights"),
    ],
)
def test_a_wrong_python_name_is_a_clear_error(model: str, message: str) -> None:
    """The error names the model and what is wrong."""
    with pytest.raises(SettingsError, match=message):
        load_backend(queue_settings(model=model))


def test_torch_serves_embed_only_so_far() -> None:
    """Said before anything is loaded."""
    with pytest.raises(SettingsError, match="classify"):
        load_backend(queue_settings(model="m", task="classify"))


def test_options_are_for_python_factories() -> None:
    """A setting that would be ignored is an error."""
    with pytest.raises(SettingsError, match=r"takes no options \(dim\)"):
        load_backend(queue_settings(model="m", options={"dim": 3}))


def test_a_fault_backend_is_ready_without_torch() -> None:
    """Nothing on its way imports the heavy libraries."""
    code = (
        "import sys, cordwood_worker, cordwood_worker.backends, cordwood_worker.testing as t;"
        "t.FaultBackend().tokenise(['a']);"
        "sys.exit(bool({'torch', 'transformers', 'sentence_transformers'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}, check=False, timeout=60
    )
    assert result.returncode == 0
