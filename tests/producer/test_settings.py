from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pydantic
import pytest

from cordwood.errors import SettingsError
from cordwood.settings import QueueSettings, Settings, load

Load = Callable[..., Settings]


@pytest.fixture
def load_from(tmp_path: Path) -> Load:
    """Load settings from the text of a TOML file, variables and flags."""

    def load_text(
        toml: str = "", environ: Mapping[str, str] | None = None, flags: Mapping[str, object] | None = None
    ) -> Settings:
        path = tmp_path / "local.toml"
        path.write_text(toml, "utf-8")
        return load(path, environ or {}, flags or {})

    return load_text


def test_without_any_source_the_defaults_hold() -> None:
    """They are those of the documentation."""
    settings = load(None, {}, {})
    assert settings == Settings()
    assert (settings.lease_s, settings.heartbeat_s, settings.heartbeat_ttl_s) == (30.0, 2.0, 6.0)
    assert (settings.data_dir, settings.redis_url, settings.queues) == (Path(".cordwood"), None, {})


def test_each_source_gives_way_to_the_next(load_from: Load) -> None:
    """Defaults, then the file, then the environment, then flags."""
    environ = {"CORDWOOD_MAX_ATTEMPTS": "3", "CORDWOOD_MAX_DEPTH": "30"}
    settings = load_from(
        "lookahead = 2\nmax_attempts = 2\nmax_depth = 20", environ, {"max_depth": 400, "lease_s": None}
    )
    assert (settings.lookahead, settings.max_attempts, settings.max_depth, settings.lease_s) == (2, 3, 400, 30.0)


def test_values_of_a_size_for_tests_are_accepted(load_from: Load) -> None:
    """Short leases must not drag other settings along."""
    settings = load_from("lease_s = 3\nheartbeat_s = 0.2\nmax_wait_ms = 0\ndrain_s = 0\nresult_ttl_s = 0")
    assert (settings.lease_s, settings.heartbeat_s, settings.drain_s) == (3.0, 0.2, 0.0)


@pytest.mark.parametrize(
    ("toml", "environ", "flags", "message"),
    [
        ("lease_s = 'abc'", {}, {}, r"local\.toml: lease_s = 'abc': .*number"),
        ("", {"CORDWOOD_LEASE_S": "-1"}, {}, r"^environment CORDWOOD_LEASE_S = '-1': .*greater than 0"),
        ("", {}, {"lease_s": "nan"}, r"^flag --lease-s = 'nan': .*finite"),
        ("max_attempts = true", {}, {}, r"local\.toml: max_attempts = True: .*number"),
        ("max_attempts = 0", {}, {}, r"local\.toml: max_attempts = 0: .*greater than or equal to 1"),
        ("max_payload_bytes = 600000000", {}, {}, r"local\.toml: max_payload_bytes = 600000000: .*less than"),
        ("log_level = 'loud'", {}, {}, r"local\.toml: log_level = 'loud': .*'debug'"),
        ("queues = 3", {}, {}, r"local\.toml: queues = 3: "),
        ("[queues.embed]", {}, {}, r"local\.toml: queues\.embed\.model is missing"),
        ("[queues.embed]\nmodel = ''", {}, {}, r"local\.toml: queues\.embed\.model = '': "),
        ("[queues.embed]\nmodel = 'm'\noptions = {a = [1]}", {}, {}, r"queues\.embed\.options\.a = \[1\]: "),
        ("[queues.'two words']\nmodel = 'm'", {}, {}, r"local\.toml: queues\.two words = .*1 to 64 characters"),
    ],
)
def test_a_wrong_value_is_named_with_its_source(
    load_from: Load, toml: str, environ: Mapping[str, str], flags: Mapping[str, object], message: str
) -> None:
    """Key, value and source stand in the message, whichever source it was."""
    with pytest.raises(SettingsError, match=message):
        load_from(toml, environ, flags)


@pytest.mark.parametrize(
    ("toml", "flags", "message"),
    [
        ("leas_s = 3", {}, r"local\.toml: leas_s is not a setting; did you mean lease_s\?"),
        (
            "[queues.embed]\nmodel = 'm'\nmodle = 'm'",
            {},
            r"queues\.embed\.modle is not a setting; did you mean model\?",
        ),
        ("colour = 'red'", {}, r"local\.toml: colour is not a setting$"),
        ("", {"max_deep": 3}, r"flag --max-deep is not a setting; did you mean max_depth\?"),
    ],
)
def test_an_unknown_key_is_an_error_with_a_hint(
    load_from: Load, toml: str, flags: Mapping[str, object], message: str
) -> None:
    """A setting that is not there cannot have been meant to do nothing."""
    with pytest.raises(SettingsError, match=message):
        load_from(toml, {}, flags)


def test_all_faults_are_reported_at_once(load_from: Load) -> None:
    """One line each, so that nobody has to start again for every slip."""
    with pytest.raises(SettingsError) as caught:
        load_from("lease_s = 0\nmax_depth = 0", {"CORDWOOD_LOOKAHEAD": "no"})
    assert len(str(caught.value).splitlines()) == 3


def test_a_heartbeat_that_expires_before_the_next_but_one_is_refused(load_from: Load) -> None:
    """The two keys can come from two sources, and both are named."""
    with pytest.raises(SettingsError, match="at least twice") as caught:
        load_from("heartbeat_ttl_s = 1.0", {"CORDWOOD_HEARTBEAT_S": "0.9"})
    assert "local.toml: heartbeat_ttl_s and environment CORDWOOD_HEARTBEAT_S: " in str(caught.value)
    with pytest.raises(SettingsError, match="and default heartbeat_s: "):
        load_from("heartbeat_ttl_s = 1.0")


@pytest.mark.parametrize("good", ["6:3:1", "1:1:1", "999999:20:1", "strict"])
def test_weights_of_lanes_are_three_numbers_or_strict(load_from: Load, good: str) -> None:
    """As text, for high, normal and low."""
    assert load_from(f'lane_weights = "{good}"').lane_weights == good


@pytest.mark.parametrize(
    "bad", ["", "6:3", "6:3:1:1", "6:3:0", "6:-3:1", "6:3:1.5", "6 3 1", "Strict", "٦:3:1", "1:1:9999999"]
)
def test_other_weights_of_lanes_are_refused(load_from: Load, bad: str) -> None:
    """A lane of no weight would starve, which only `strict` may do."""
    with pytest.raises(SettingsError, match=r"lane_weights.*should be strict, or three whole numbers"):
        load_from(f'lane_weights = "{bad}"')


def test_a_password_is_in_no_message_and_no_representation(load_from: Load) -> None:
    """Neither a URL that is refused nor one that is accepted shows it, and a raw special character gets a hint."""
    with pytest.raises(SettingsError, match="percent-encode") as caught:
        load_from("", {"CORDWOOD_REDIS_URL": "redis://:p@ss/w#rd:%?@example.org:6379/0"})
    for part in ("p@ss", "ss/", "w#rd", "rd:"):
        assert part not in str(caught.value)
    accepted = load_from("", {}, {"redis_url": "redis://:sesame@example.org/0"})
    assert accepted.redis_url == "redis://:sesame@example.org/0"
    for shown in (repr(accepted), str(accepted), f"{accepted}"):
        assert "redis://***@example.org/0" in shown
        assert "sesame" not in shown
    with pytest.raises(pydantic.ValidationError) as plain:
        Settings(redis_url="redis://:ses#ame@example.org")
    assert "ses" not in str(plain.value)


def test_an_option_with_the_name_of_a_secret_is_not_shown(load_from: Load) -> None:
    """A factory's options may hold a key of some service."""
    with pytest.raises(SettingsError, match=r"options\.api_key = \*\*\*: ") as caught:
        load_from("[queues.embed]\nmodel = 'm'\noptions = {api_key = ['sesame']}")
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize("value", [1, "x", {"a": 1}])
def test_settings_are_frozen(value: Any) -> None:
    """They are built once and passed down; nobody changes them on the way."""
    with pytest.raises(pydantic.ValidationError):
        Settings().lease_s = value  # type: ignore[misc]
    with pytest.raises(pydantic.ValidationError):
        QueueSettings(model="m").model = value  # type: ignore[misc]


def test_a_home_folder_is_expanded() -> None:
    """`~` means what it means in a shell."""
    assert Settings(data_dir=Path("~/cordwood")).data_dir == Path.home() / "cordwood"


def test_a_queue_has_its_own_limits_where_it_sets_them(load_from: Load) -> None:
    """Zero is a value: a queue may refuse to wait though others do."""
    settings = load_from(
        "max_batch_rows = 64\nmax_wait_ms = 5\n"
        "[queues.own]\nmodel = 'm'\nmax_batch_tokens = 100\nmax_wait_ms = 0\n[queues.plain]\nmodel = 'm'"
    )
    own, plain = settings.batch_limits("own"), settings.batch_limits("plain")
    assert (own.max_tokens, own.max_rows, own.max_wait_ms) == (100, 64, 0.0)
    assert (plain.max_tokens, plain.max_rows, plain.max_wait_ms) == (16384, 64, 5.0)


def test_a_queue_that_is_not_there_is_named_with_those_that_are(load_from: Load) -> None:
    """The message is enough to see the slip."""
    settings = load_from("[queues.embed]\nmodel = 'm'\noptions = {delay_s = 0.5, dim = 8, on = true, name = 'x'}")
    assert settings.queue("embed").options == {"delay_s": 0.5, "dim": 8, "on": True, "name": "x"}
    with pytest.raises(SettingsError, match=r"'embde' .*\(there: embed\)"):
        settings.queue("embde")


@pytest.mark.parametrize("path", sorted(Path(__file__).parents[2].glob("configs/*.toml")), ids=lambda path: path.name)
def test_the_shipped_configurations_load(path: Path) -> None:
    """What configs/ holds has not fallen behind the code."""
    assert load(path, {}, {}).queues
