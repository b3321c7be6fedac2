"""All settings in one frozen record, built once from four sources and passed down.

Defaults give way to the TOML file, that to the environment, and that to flags. A wrong value is an error that names the
key, the value and where it came from.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from cordwood.codec import MAX_ITEMS
from cordwood.errors import SettingsError
from cordwood.keys import QUEUE_NAME
from cordwood.server_url import check_url, masked_url
from cordwood.setting_sources import Source, read_environment, read_flags, read_toml, similar

MAX_PAYLOAD_BYTES: Final = 256 * 1024 * 1024
"""Half of what a server accepts in one value (512 MiB): above it, it closes the connection without a word."""

STRICT: Final = "strict"
LANE_WEIGHTS: Final = re.compile(r"[1-9]\d{0,5}(:[1-9]\d{0,5}){2}", re.ASCII)
_SECRET: Final = re.compile(r"(?i).*(password|passwd|secret|token|key)")
_SHOWN_CHARACTERS: Final = 80


def _refuse_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise PydanticCustomError("bool_number", "should be a number, not true or false")
    return value


def _plain(value: Any) -> Any:
    if not isinstance(value, str | int | float | bool):
        raise PydanticCustomError("option", "should be text, a number, true or false")
    return value


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _valid_url(url: str) -> str:
    try:
        check_url(url)
    except ValueError as error:
        raise PydanticCustomError("redis_url", "{reason}", {"reason": str(error)}) from None
    return url


def _home_expanded(path: Path) -> Path:
    return path.expanduser()


def _queue_name(name: str) -> str:
    if QUEUE_NAME.fullmatch(name) is None:
        raise PydanticCustomError("queue_name", "a queue's name is 1 to 64 characters of A-Z a-z 0-9 . _ -")
    return name


def are_lane_weights(text: str) -> bool:
    """Whether this says how lanes share a device: `strict`, or three weights such as `6:3:1`."""
    return text == STRICT or LANE_WEIGHTS.fullmatch(text) is not None


def _lane_weights(text: str) -> str:
    if not are_lane_weights(text):
        raise PydanticCustomError("lane_weights", "should be strict, or three whole numbers from 1 on, such as 6:3:1")
    return text


_NotBool = BeforeValidator(_refuse_bool)
_Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False), _NotBool]
_SecondsOrNone = Annotated[float, Field(ge=0, allow_inf_nan=False), _NotBool]
_Milliseconds = Annotated[float, Field(ge=0, allow_inf_nan=False), _NotBool]
_Count = Annotated[int, Field(ge=1), _NotBool]
_CountOrNone = Annotated[int, Field(ge=0), _NotBool]
_Bytes = Annotated[int, Field(ge=1, le=MAX_PAYLOAD_BYTES), _NotBool]
_Option = Annotated[str | int | float | bool, BeforeValidator(_plain)]


class BatchBudget(BaseModel):
    """How large a batch may be, in tokens with padding and in rows, and how long its oldest job may wait for it."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    max_tokens: _Count
    max_rows: _Count
    max_wait_ms: _Milliseconds


class QueueSettings(BaseModel):
    """What serves one queue: a task on one model, and its own limits where they differ from the general ones.

    `model` is a hub name, a folder, or `python:package.module:factory`, which gets `options`. `weight` is the queue's
    part of the device's time where one worker serves several.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    task: Literal["embed", "classify", "zero_shot", "rerank"] = "embed"
    model: Annotated[str, Field(min_length=1)]
    revision: str | None = None
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    backend: Literal["auto", "padded", "packed", "onnx", "openvino"] = "auto"
    device: Annotated[str, Field(min_length=1)] = "auto"
    max_batch_tokens: _Count | None = None
    max_batch_rows: _Count | None = None
    max_wait_ms: _Milliseconds | None = None
    weight: _Count = 1
    options: dict[str, _Option] = Field(default_factory=dict)


class Settings(BaseModel):
    """Every setting of a client or a worker; times in the unit of their names, sizes in bytes.

    A `result_ttl_s` of 0 keeps results for good. Relative paths are meant from the working directory.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    redis_url: Annotated[str, AfterValidator(_valid_url)] | None = None
    data_dir: Annotated[Path, AfterValidator(_home_expanded)] = Path(".cordwood")
    lease_s: _Seconds = 30.0
    heartbeat_s: _Seconds = 2.0
    heartbeat_ttl_s: _Seconds = 6.0
    max_attempts: _Count = 5
    max_batch_tokens: _Count = 16384
    max_batch_rows: _Count = 256
    max_wait_ms: _Milliseconds = 2.0
    lookahead: _Count = 4
    lane_weights: Annotated[str, AfterValidator(_lane_weights)] = "6:3:1"
    drain_s: _SecondsOrNone = 8.0
    result_ttl_s: _SecondsOrNone = 3600.0
    dead_ttl_s: _Seconds = 604_800.0
    max_depth: _Count = 1_000_000
    max_outbox: _CountOrNone = 100_000
    max_payload_bytes: _Bytes = 1_048_576
    max_result_bytes: _Bytes = 4_194_304
    max_inputs: Annotated[int, Field(ge=1, le=MAX_ITEMS), _NotBool] = 256
    log_level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_lower)] = "info"
    queues: dict[Annotated[str, AfterValidator(_queue_name)], QueueSettings] = Field(default_factory=dict)

    def __repr_args__(self) -> list[tuple[str | None, Any]]:
        """Show every field, but no password."""
        shown = dict(super().__repr_args__())
        if self.redis_url is not None:
            shown["redis_url"] = masked_url(self.redis_url)
        return list(shown.items())

    @model_validator(mode="after")
    def _check_heartbeat(self) -> Self:
        """One late heartbeat must not make a live worker look dead."""
        if self.heartbeat_ttl_s < 2 * self.heartbeat_s:
            raise PydanticCustomError(
                "conflict",
                "heartbeat_ttl_s of {ttl} must be at least twice heartbeat_s of {beat}",
                {"ttl": self.heartbeat_ttl_s, "beat": self.heartbeat_s, "keys": ("heartbeat_ttl_s", "heartbeat_s")},
            )
        return self

    def queue(self, name: str) -> QueueSettings:
        """Return the settings of a queue; raise SettingsError, naming those there are, if it has none."""
        if name not in self.queues:
            known = ", ".join(sorted(self.queues)) or "none"
            raise SettingsError(f"queue {name!r} has no [queues.{name}] in the settings (there: {known})")
        return self.queues[name]

    def batch_limits(self, name: str) -> BatchBudget:
        """Return the batch limits of a queue: its own, and the general ones where it has none of its own."""
        own = self.queue(name)
        return BatchBudget(
            max_tokens=own.max_batch_tokens or self.max_batch_tokens,
            max_rows=own.max_batch_rows or self.max_batch_rows,
            max_wait_ms=self.max_wait_ms if own.max_wait_ms is None else own.max_wait_ms,
        )


def load(toml: Path | None, environ: Mapping[str, str], flags: Mapping[str, object]) -> Settings:
    """Build the settings from defaults, then the TOML file, then `CORDWOOD_<KEY>` variables, then flags.

    A flag that is None was not given. Raises SettingsError with a line for every wrong value and every unknown key:
    what it is, its value (without secrets) and where it came from.
    """
    sources = [read_environment(environ, Settings.model_fields), read_flags(flags)]
    if toml is not None:
        sources.insert(0, read_toml(toml))
    values: dict[str, Any] = {}
    origin: dict[str, Source] = {}
    for source in sources:
        values |= source.values
        origin |= dict.fromkeys(source.values, source)
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        faults = [_describe(fault, origin) for fault in error.errors(include_url=False)]
    raise SettingsError("\n".join(faults))


def _describe(fault: Mapping[str, Any], origin: Mapping[str, Source]) -> str:
    if fault["type"] == "conflict":
        keys = fault["ctx"]["keys"]
        places = " and ".join(origin[key].place((key,)) if key in origin else f"default {key}" for key in keys)
        return f"{places}: {fault['msg']}"
    path = tuple(str(part) for part in fault["loc"] if part != "[key]")
    place = origin[path[0]].place(path)
    if fault["type"] == "extra_forbidden":
        meant = similar(path[-1], _siblings(path))
        return f"{place} is not a setting" + (f"; did you mean {meant}?" if meant else "")
    if fault["type"] == "missing":
        return f"{place} is missing"
    return f"{place} = {_shown(path, fault['input'])}: {fault['msg']}"


def _siblings(path: tuple[str, ...]) -> Collection[str]:
    return Settings.model_fields if len(path) == 1 else QueueSettings.model_fields


def _shown(path: tuple[str, ...], value: Any) -> str:
    """Return a value as a message may show it: a password may stand in a URL, and in a factory's options."""
    if path[0] == "redis_url":
        return repr(masked_url(value)) if isinstance(value, str) else type(value).__name__
    if any(_SECRET.fullmatch(part) for part in path):
        return "***"
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
