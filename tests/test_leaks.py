import fakeredis
import pytest

from cordwood.keys import QUEUES, queue_keys
from tests.leaks import leaked_keys

KEYS = queue_keys("q.1")


@pytest.fixture
def fake() -> fakeredis.FakeRedis:
    """An empty server of this test's own."""
    return fakeredis.FakeRedis()


def test_the_constant_set_is_no_leak(fake: fakeredis.FakeRedis) -> None:
    """Every fixed key that the code knows of is one that is documented to stay, in every shard."""
    fake.sadd(QUEUES, "q.1")
    for key in (*KEYS.fixed, *queue_keys("q.1", 2).fixed):
        fake.set(key, "x")
    assert leaked_keys(fake) == []


@pytest.mark.parametrize("key", ["cw:{q.1}:job", "cw:{q.1}:lane:other", "cw:{q.1}:done:8", "cw:lock", "something"])
def test_any_other_key_is_a_leak_unless_it_has_a_ttl(fake: fakeredis.FakeRedis, key: str) -> None:
    """A new kind of key that stays has to be decided on."""
    fake.set(key, "x")
    assert [leak.split(" ")[0] for leak in leaked_keys(fake)] == [key]
    fake.expire(key, 100)
    assert leaked_keys(fake) == []


def test_a_record_may_stay_only_while_its_job_lives_and_the_test_says_so(fake: fakeredis.FakeRedis) -> None:
    """Jobs that are queued, running or delayed are work left undone."""
    for state in ("queued", "running", "delayed"):
        fake.hset(KEYS.job(state), mapping={"st": state, "rt": 1000})
    assert len(leaked_keys(fake)) == 3
    assert leaked_keys(fake, live_jobs_allowed=True) == []


@pytest.mark.parametrize("state", ["done", "failed", "dead", "cancelled", "expired"])
def test_a_record_of_an_ended_job_needs_a_ttl(fake: fakeredis.FakeRedis, state: str) -> None:
    """The only ones that stay are those whose results were asked to."""
    fake.hset(KEYS.job("a b:c"), mapping={"st": state, "rt": 1000})
    assert len(leaked_keys(fake, live_jobs_allowed=True)) == 1
    fake.hset(KEYS.job("a b:c"), "rt", 0)
    assert leaked_keys(fake) == []


def test_a_record_that_is_none_is_a_leak(fake: fakeredis.FakeRedis) -> None:
    """Of another type, without a state, or in a state that is none."""
    fake.set(KEYS.job("text"), "x")
    fake.hset(KEYS.job("stateless"), "rt", 0)
    fake.hset(KEYS.job("odd"), mapping={"st": "odd", "rt": 0})
    assert len(leaked_keys(fake, live_jobs_allowed=True)) == 3
