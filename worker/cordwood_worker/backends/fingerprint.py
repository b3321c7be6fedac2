"""The fingerprint of a model's folder: equal for equal weights, tokenizer and configuration."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FINGERPRINT_BYTES: Final = 8
_CHUNK_BYTES: Final = 1 << 20
_PATTERNS: Final = (
    "*.safetensors",
    "*.safetensors.index.json",
    "config.json",
    "config_sentence_transformers.json",
    "modules.json",
    "sentence_*_config.json",
    "*tokenizer*.json",
    "tokenizer.model",
    "added_tokens.json",
    "special_tokens_map.json",
    "vocab.*",
    "merges.txt",
    "*.bpe.model",
    "spiece.model",
)


def fingerprint(folder: Path) -> str:
    """Return 16 hex digits over the names and contents of the files that decide what a model computes.

    These are the weights, tokenizer and configuration files of the folder and of the module folders that its
    `modules.json` names; exports for other runtimes, readmes and the like do not count. Files are streamed.
    """
    total = blake2b(digest_size=FINGERPRINT_BYTES)
    for path in sorted(set(_files(folder))):
        total.update(f"{path.relative_to(folder).as_posix()}\0{path.stat().st_size}\0".encode())
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                total.update(chunk)
    return total.hexdigest()


def module_folders(folder: Path) -> list[Path]:
    """Return the folder itself and the folders of its modules that exist."""
    listing = folder / "modules.json"
    modules = json.loads(listing.read_text("utf-8")) if listing.is_file() else []
    found = [folder, *(folder / str(module.get("path", "")) for module in modules)]
    return [path for path in dict.fromkeys(found) if path.is_dir()]


def _files(folder: Path) -> Iterator[Path]:
    for place in module_folders(folder):
        for pattern in _PATTERNS:
            yield from (path for path in place.glob(pattern) if path.is_file())
