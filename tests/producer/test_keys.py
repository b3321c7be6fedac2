from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from cordwood.keys import ALL_LANES, DONE_SHARDS, LANES, QUEUE_NAME, QUEUES, done_shard, queue_keys, tag

queue_names = st.from_regex(re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII), fullmatch=True)


def slot(key: str) -> int:
    """The cluster slot of a key."""
    return key_slot(key.encode())


@given(queue=queue_names, shard=st.integers(0, 40), job_id=st.text(min_size=1, max_size=40))
def test_c40_all_keys_of_a_queues_shard_are_in_one_slot(queue: str, shard: int, job_id: str) -> None:
    """Every fixed key, every lane, every done shard and any record share the slot, whatever the job ID."""
    keys = queue_keys(queue, shard)
    names = [*keys.fixed, *map(keys.lane, ALL_LANES), *map(keys.done, range(DONE_SHARDS)), keys.job(job_id)]
    assert {slot(name) for name in names} == {slot(tag(queue, shard))}


@pytest.mark.parametrize("job_id", ["{x}", "a{x}b", "}{", "{", "}", "{}", "{{other}}", "{embed}", "cw:{other}:job:1"])
def test_c40_braces_in_a_job_id_do_not_move_its_record(job_id: str) -> None:
    """A user's ID with a hash tag of its own changes nothing."""
    keys = queue_keys("embed")
    assert slot(keys.job(job_id)) == slot(keys.lane("normal"))


def test_c40_shards_of_a_queue_may_be_in_different_slots() -> None:
    """The tag names the shard, so that a large queue can be spread."""
    assert tag("embed") == "{embed}"
    assert tag("embed", 3) == "{embed#3}"
    assert len({slot(tag("embed", shard)) for shard in range(8)}) > 1


def test_no_two_keys_are_spelled_alike() -> None:
    """Each fixed key has a name of its own, and none of them looks like a record or the key of all queues."""
    keys = queue_keys("embed")
    assert len(set(keys.fixed)) == len(keys.fixed)
    assert not any(name.startswith(keys.job("")) for name in keys.fixed)
    assert QUEUES not in keys.fixed


def test_named_keys_are_the_fixed_ones() -> None:
    """The named builders spell what every script gets, and other names are refused."""
    keys = queue_keys("embed")
    assert keys.lane("high") == keys.named("lane:high") == "cw:{embed}:lane:high"
    assert keys.done(7) == keys.named("done:7")
    assert {*map(keys.lane, ALL_LANES), *map(keys.done, range(DONE_SHARDS))} <= set(keys.fixed)
    assert {keys.named(f"fair:{lane}") for lane in LANES} <= set(keys.fixed)
    with pytest.raises(KeyError):
        keys.named("job:1")


@given(queue=queue_names, job_id=st.text(max_size=40))
def test_a_records_key_gives_its_job_id_back(queue: str, job_id: str) -> None:
    """Also for IDs that look like keys."""
    keys = queue_keys(queue)
    assert keys.job_id(keys.job(job_id)) == job_id


@pytest.mark.parametrize("queue", ["", "a b", "a*", "[a]", "é", "a{b}", "a\n", "x" * 65, "a:b", "٣"])
def test_other_queue_names_are_refused(queue: str) -> None:
    """Names are literal in patterns and in tags, since nothing else is allowed in them."""
    with pytest.raises(ValueError, match="queue name"):
        queue_keys(queue)
    assert QUEUE_NAME.fullmatch(queue) is None


@given(name=st.text(max_size=60))
def test_a_clients_done_shard_is_fixed_and_in_range(name: str) -> None:
    """The same client name always reads the same stream."""
    assert done_shard(name) == done_shard(name)
    assert 0 <= done_shard(name) < DONE_SHARDS
