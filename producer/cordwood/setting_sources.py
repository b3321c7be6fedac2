"""Where settings come from: a TOML file, the environment and flags, and what each calls a key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from cordwood.errors import SettingsError

ENVIRONMENT_PREFIX: Final = "CORDWOOD_"

# Kubernetes sets variables such as CORDWOOD_PORT and CORDWOOD_REDIS_SERVICE_HOST for services of these names.
_KUBERNETES: Final = re.compile(r".*_SERVICE_(HOST|PORT)(_\w+)?|(.*_)?PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?")
_SIMILARITY: Final = 0.7
"""From here on a name looks like a slip: `leas` for `lease_s` has 0.73, `redis_host` for `redis_url` 0.63."""


@dataclass(frozen=True, slots=True)
class Source:
    """One place that gives values, in the form of TOML: nested tables, or plain keys only."""

    kind: str
    values: Mapping[str, Any]

    def place(self, path: tuple[str, ...]) -> str:
        """Return what this source calls the key at `path`, such as `environment CORDWOOD_LEASE_S`."""
        key = ".".join(path)
        if self.kind == "environment":
            return f"environment {ENVIRONMENT_PREFIX}{key.upper()}"
        if self.kind == "flag":
            return f"flag --{key.replace('_', '-')}"
        return f"{self.kind}: {key}"


def read_toml(path: Path) -> Source:
    """Read a settings file; raise SettingsError, naming it, if it cannot be read or is no TOML."""
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: is not UTF-8 text") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: is not valid TOML: {error}") from error
    return Source(str(path), values)


def read_environment(environ: Mapping[str, str], known: Collection[str]) -> Source:
    """Take the variables `CORDWOOD_<KEY>` of the known keys; an empty one counts as not set.

    Raises SettingsError for a variable that looks like a slip for a known one. Others are left alone: they belong to
    somebody else.
    """
    values: dict[str, str] = {}
    for name in sorted(environ):
        if not name.startswith(ENVIRONMENT_PREFIX):
            continue
        key = name.removeprefix(ENVIRONMENT_PREFIX).lower()
        if key in known:
            values |= {key: environ[name]} if environ[name] else {}
            continue
        meant = similar(key, known)
        if meant and not _KUBERNETES.fullmatch(name):
            raise SettingsError(
                f"environment {name} is not a setting; did you mean {ENVIRONMENT_PREFIX}{meant.upper()}?"
            )
    return Source("environment", values)


def read_flags(flags: Mapping[str, object]) -> Source:
    """Take the flags that were given: those that are not None."""
    return Source("flag", {key: value for key, value in flags.items() if value is not None})


def similar(name: str, known: Collection[str]) -> str | None:
    """Return the known name that this one looks like a slip for, if there is one."""
    matches = get_close_matches(name, sorted(known), n=1, cutoff=_SIMILARITY)
    return matches[0] if matches else None
