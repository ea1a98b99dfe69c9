"""The names of keys in Redis."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from disque_bananaq.redis_store.keys import SLOTS, KeyNames


@given(st.binary(max_size=20), st.binary(max_size=20))
def test_no_two_queues_share_keys_and_each_key_leads_back_to_its_queue(
    one: bytes, other: bytes
) -> None:
    names = KeyNames("p:x")
    assert (names.base(one) == names.base(other)) == (one == other)
    assert names.queue_of(names.base(one) + b":m") == one
    assert names.queue_of(names.channel(one)) == one
    assert names.decode(names.encode(one)) == one
    assert b":" not in names.encode(one)


@given(st.binary(max_size=20))
def test_all_keys_of_a_queue_have_one_hash_tag(queue: bytes) -> None:
    base = KeyNames().base(queue)
    assert base.count(b"{") == base.count(b"}") == 1
    assert base.endswith(b"}")
    assert base.index(b"}") > base.index(b"{") + 1


def test_other_keys_belong_to_no_queue() -> None:
    names = KeyNames("a")
    for key in (b"", b"a", b"a:{q=", b"a:{q=x}", b"b:{q=x}:m", b"aa:{q=x}:m"):
        assert names.queue_of(key) is None


@pytest.mark.parametrize("prefix", ["{", "}", "a{b}c"])
def test_a_prefix_with_braces_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="brace"):
        KeyNames(prefix)


@given(st.binary(max_size=20))
def test_the_slot_equals_that_of_redis(queue: bytes) -> None:
    names = KeyNames()
    assert names.slot(queue) == key_slot(names.base(queue) + b":ids")


@given(st.integers(0, SLOTS - 1), st.integers(0, SLOTS - 1))
def test_a_key_of_no_queue_is_in_the_requested_slots(one: int, other: int) -> None:
    low, high = sorted((one, other))
    names = KeyNames()
    key = names.of_no_queue(low, high)
    assert low <= key_slot(key) <= high
    assert names.queue_of(key) is None


def test_the_key_of_no_queue_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    names = KeyNames()
    key = names.of_no_queue(7, 7)
    monkeypatch.delattr("disque_bananaq.redis_store.keys.binascii")
    assert names.of_no_queue(7, 7) == key
