"""Scans of the registry while entries come and go."""

import sys
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disque_trio.node.core.jobs.registry import SHARDS, Registry

keys = st.binary(min_size=1, max_size=8)


def walk(registry: Registry[bytes], count: int) -> list[bytes]:
    found: list[bytes] = []
    cursor = 0
    while True:
        cursor, some = registry.scan(cursor, count)
        found += some
        if cursor == 0:
            return found


@given(st.sets(keys), st.integers(1, 20))
def test_a_walk_gives_every_entry_once(there: set[bytes], count: int) -> None:
    registry: Registry[bytes] = Registry()
    for key in there:
        registry.put(key, key)
    found = walk(registry, count)
    assert len(found) == len(there) == len(registry)
    assert set(found) == there


@given(
    st.sets(keys, max_size=60),
    st.lists(st.tuples(st.booleans(), keys), max_size=120),
    st.integers(1, 8),
)
def test_what_is_there_throughout_comes_once_whatever_comes_and_goes(
    there: set[bytes], changes: list[tuple[bool, bytes]], count: int
) -> None:
    registry: Registry[bytes] = Registry()
    for key in there:
        registry.put(key, key)
    left = iter(changes)
    found: list[bytes] = []
    cursor = 0
    while True:
        cursor, some = registry.scan(cursor, count)
        found += some
        if cursor == 0:
            break
        for _ in range(3):
            add, key = next(left, (True, b""))
            if key in there or not key:
                continue
            if add and registry.get(key) is None:
                registry.put(key, key)
            elif not add and registry.get(key) is not None:
                registry.drop(key)
    # An entry that is removed and added again is a new one, so only those that stayed must come
    # exactly once.
    stayed = [key for key in found if key in there]
    assert sorted(stayed) == sorted(there)


@given(st.sets(keys, max_size=40), st.integers(0, 2**70), st.integers(1, 5))
def test_any_number_is_a_cursor(there: set[bytes], cursor: int, count: int) -> None:
    registry: Registry[bytes] = Registry()
    for key in there:
        registry.put(key, key)
    following, found = registry.scan(cursor, count)
    assert set(found) <= there
    assert following == 0 or following > cursor


def test_keys_with_one_checksum_are_not_parted() -> None:
    twins = [b"plumless", b"buckeroo"]
    assert zlib.crc32(twins[0]) == zlib.crc32(twins[1])
    registry: Registry[bytes] = Registry()
    for key in twins:
        registry.put(key, key)
    assert sorted(walk(registry, 1)) == sorted(twins)


def test_a_step_gives_about_as_many_as_asked_for() -> None:
    registry: Registry[bytes] = Registry()
    for number in range(5000):
        registry.put(b"%d" % number, b"%d" % number)
    cursor, found = registry.scan(0, 100)
    assert 100 <= len(found) <= 101
    assert cursor > 0


@pytest.mark.parametrize("count", [1, 1000])
def test_an_empty_registry_is_walked_in_one_step(count: int) -> None:
    registry: Registry[bytes] = Registry()
    assert registry.scan(0, count) == (0, [])


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20)), max_size=60))
def test_a_registry_is_a_mapping(changes: list[tuple[bool, int]]) -> None:
    registry: Registry[int] = Registry()
    model: dict[bytes, int] = {}
    for add, number in changes:
        key = b"%d" % number
        if add and key not in model:
            registry.put(key, number)
            model[key] = number
        elif not add and key in model:
            registry.drop(key)
            del model[key]
        assert registry.get(key) == model.get(key)
        assert len(registry) == len(model)
    assert sorted(registry.values()) == sorted(model.values())
    registry.hand_over()
    assert registry.values() == []
    assert len(registry) == 0


def room(registry: Registry[bytes]) -> int:
    return sum(sys.getsizeof(shard) for shard in registry.shards)


def test_tidying_gives_back_the_room_of_entries_that_are_gone() -> None:
    registry: Registry[bytes] = Registry()
    every = [b"%d" % number for number in range(100_000)]
    for key in every:
        registry.put(key, key)
    full = room(registry)
    registry.tidy(SHARDS)
    assert room(registry) == full
    for key in every[500:]:
        registry.drop(key)
    assert room(registry) == full
    registry.tidy(SHARDS // 2)
    assert room(registry) < full * 3 / 4
    registry.tidy(SHARDS // 2)
    assert room(registry) < full / 5
    assert sorted(registry.values()) == sorted(every[:500])
    assert len(registry) == 500
    assert sorted(walk(registry, 7)) == sorted(every[:500])


def test_what_is_handed_over_is_not_there_any_more() -> None:
    registry: Registry[bytes] = Registry()
    registry.put(b"a", b"1")
    shards = registry.hand_over()
    assert [shard for shard in shards if shard] == [{b"a": b"1"}]
    assert len(registry) == 0
    assert registry.get(b"a") is None
    registry.put(b"a", b"2")
    assert registry.get(b"a") == b"2"


@pytest.mark.parametrize("replace", [Registry.hand_over, lambda registry: registry.tidy(SHARDS)])
def test_the_last_key_is_put_where_it_is_found_after_a_change(
    replace: Callable[[Registry[bytes]], object],
) -> None:
    registry: Registry[bytes] = Registry()
    shard = zlib.crc32(b"last") >> 22
    others = [key for key in (b"%d" % n for n in range(500_000)) if zlib.crc32(key) >> 22 == shard]
    for key in others:
        registry.put(key, key)
    for key in others:
        registry.drop(key)
    assert registry.get(b"last") is None
    replace(registry)
    registry.put(b"last", b"a job")
    assert registry.values() == [b"a job"]
    assert registry.get(b"last") == b"a job"
