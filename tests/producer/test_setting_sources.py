from pathlib import Path

import pytest

from cordwood.errors import SettingsError
from cordwood.setting_sources import Source, read_environment, read_flags, read_toml, similar

KNOWN = ("redis_url", "lease_s", "max_batch_tokens", "max_batch_rows", "log_level")


@pytest.mark.parametrize(
    ("source", "path", "place"),
    [
        (Source("environment", {}), ("lease_s",), "environment CORDWOOD_LEASE_S"),
        (Source("flag", {}), ("lease_s",), "flag --lease-s"),
        (Source("configs/local.toml", {}), ("queues", "embed", "model"), "configs/local.toml: queues.embed.model"),
    ],
)
def test_a_source_names_a_key_as_its_user_wrote_it(source: Source, path: tuple[str, ...], place: str) -> None:
    """Whoever reads the message knows where to look."""
    assert source.place(path) == place


def test_an_empty_variable_counts_as_not_set() -> None:
    """Compose files pass a variable that is not set on as an empty one."""
    assert read_environment({"CORDWOOD_REDIS_URL": "", "CORDWOOD_LEASE_S": "3", "HOME": "/"}, KNOWN).values == {
        "lease_s": "3"
    }


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("CORDWOOD_LEASE", "CORDWOOD_LEASE_S"),
        ("CORDWOOD_REDIS_URI", "CORDWOOD_REDIS_URL"),
        ("CORDWOOD_MAX_BATCH_TOKEN", "CORDWOOD_MAX_BATCH_TOKENS"),
    ],
)
def test_a_variable_that_looks_like_a_slip_is_an_error(name: str, meant: str) -> None:
    """A limit that was misspelled must not be silently missing; the value is not shown, it may be a secret."""
    with pytest.raises(SettingsError, match=rf"environment {name} .* did you mean {meant}\?") as caught:
        read_environment({name: "sesame"}, KNOWN)
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    ["CORDWOOD_PORT", "CORDWOOD_REDIS_PORT", "CORDWOOD_REDIS_SERVICE_HOST", "CORDWOOD_REDIS_PORT_6379_TCP_ADDR"],
)
def test_variables_that_kubernetes_makes_for_a_service_are_left_alone(name: str) -> None:
    """A service may well be called cordwood or cordwood-redis."""
    assert read_environment({name: "tcp://10.0.0.1:6379"}, KNOWN).values == {}


def test_a_flag_that_is_none_was_not_given() -> None:
    """A command line hands over all its options, given or not."""
    assert read_flags({"lease_s": None, "max_batch_rows": 0}).values == {"max_batch_rows": 0}


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "cannot be read"), (b"lease_s = ", "not valid TOML"), (b"\xff\xfe", "not UTF-8")],
)
def test_a_file_that_is_no_toml_is_named(tmp_path: Path, content: bytes | None, reason: str) -> None:
    """Absent, broken or binary: the error has the path."""
    path = tmp_path / "local.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingsError, match=reason) as caught:
        read_toml(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_a_name_like_no_other_is_like_none() -> None:
    """A hint that guesses wildly is worse than none."""
    assert similar("fail_on_skip", KNOWN) is None
