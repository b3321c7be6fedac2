"""Making the backend of a queue from the name of its model."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from cordwood.errors import CordwoodError, SettingsError

if TYPE_CHECKING:
    from cordwood.settings import QueueSettings
    from cordwood_worker.backends import Backend

PYTHON_SCHEME: Final = "python:"
_MEMBERS: Final = ("spec", "tokenise", "run", "warm_up")


def load_backend(queue: QueueSettings) -> Backend:
    """Return the backend of a queue, its model loaded.

    A model `python:package.module:factory` is what `factory(queue)` returns; any other name is a sentence-transformers
    model, a folder or a hub name, on torch.

    Raises SettingsError, naming the model, if there is no such factory or model or it cannot serve the queue.
    """
    if queue.model.startswith(PYTHON_SCHEME):
        return _call_factory(queue)
    if queue.task != "embed":
        raise SettingsError(f"model {queue.model!r} cannot serve task {queue.task!r}: only embed runs on torch so far")
    if queue.options:
        names = ", ".join(sorted(queue.options))
        raise SettingsError(f"model {queue.model!r} takes no options ({names}): they are for `python:` factories")
    try:
        from cordwood_worker.backends.text_backend import TextBackend

        return TextBackend.load(queue)
    except ImportError as error:
        message = f"model {queue.model!r} needs what `pip install 'cordwood[worker]'` installs: {error}"
        raise SettingsError(message) from error


def _call_factory(queue: QueueSettings) -> Backend:
    module_name, _, name = queue.model.removeprefix(PYTHON_SCHEME).partition(":")
    if not module_name or not name:
        raise SettingsError(f"model {queue.model!r} is not of the form python:package.module:factory")
    try:
        module = import_module(module_name)
    except Exception as error:
        raise SettingsError(f"model {queue.model!r}: importing {module_name} failed: {_describe(error)}") from error
    factory = getattr(module, name, None)
    if not callable(factory):
        raise SettingsError(f"model {queue.model!r}: module {module_name} has no callable {name}")
    try:
        backend: Any = factory(queue)
    except CordwoodError:
        raise
    except Exception as error:
        raise SettingsError(f"model {queue.model!r}: calling {name} failed: {_describe(error)}") from error
    missing = [member for member in _MEMBERS if not hasattr(backend, member)]
    if missing:
        made = type(backend).__name__
        raise SettingsError(f"model {queue.model!r}: {name} made a {made}, which lacks {', '.join(missing)}")
    loaded: Backend = backend
    return loaded


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
