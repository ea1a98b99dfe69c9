"""The policies that a node knows, and which of them applies to a queue."""

import pytest

from disque_trio.node.core.shared.policies import FAIR, FIFO, MAX_SIZE, NO_POLICY, Policies, Policy
from disque_trio.node.core.shared.versions import (
    DELETED_TTL,
    MAX_CLOCK,
    MAX_DELETED,
    MAX_NAME,
    Entry,
    SharedError,
)
from disque_trio.policy_options import OPTIONS
from disque_trio.protocol.fields import FieldsError, pack_fields, pack_number

A, B = b"a" * 40, b"b" * 40


def policy(name: bytes, ttl: int = 0, dead: bytes = b"", attempts: int = 0) -> Policy:
    made = Policy(name)
    made.ttl = ttl
    made.dead = dead
    made.attempts = attempts
    return made


def put(policies: Policies, name: bytes, ttl: int, node: bytes = A) -> Entry[Policy]:
    entry = policies.make(name, policy(name, ttl), node, 0)
    assert policies.put(entry)
    return entry


def delete(policies: Policies, name: bytes, now: int = 1_000, node: bytes = A) -> Entry[Policy]:
    entry = policies.make(name, None, node, now)
    assert policies.put(entry)
    return entry


def test_the_most_specific_policy_applies_as_a_whole() -> None:
    policies = Policies()
    for ttl, name in enumerate([b"*", b"mail.*", b"mail.a*", b"mail.abc", b"?"], 1):
        put(policies, name, ttl)
    assert policies.of(b"mail.abc").ttl == 4
    assert policies.of(b"mail.abd").ttl == 3
    assert policies.of(b"mail.x").ttl == 2
    assert policies.of(b"x").ttl == 5
    assert policies.of(b"other").ttl == 1
    assert policies.of(b"other").name == b"*"


def test_of_patterns_with_as_many_literal_characters_the_first_by_name_applies() -> None:
    policies = Policies()
    put(policies, b"b*", 2)
    put(policies, b"*b", 1)
    assert policies.of(b"bb").ttl == 1


def test_a_name_that_is_too_long_for_patterns_has_the_default() -> None:
    policies = Policies()
    put(policies, b"q*", 1)
    name = b"q" * (MAX_NAME + 1)
    assert policies.of(name) is NO_POLICY
    put(policies, b"*", 2)
    assert policies.of(name).ttl == 2
    assert policies.of(name[1:]).ttl == 1


def test_a_queue_without_a_policy_has_none() -> None:
    policies = Policies()
    assert policies.of(b"q") is NO_POLICY
    put(policies, b"mail.*", 1)
    assert policies.of(b"q") is NO_POLICY


def test_a_queue_that_looks_like_a_pattern_is_matched_by_it() -> None:
    policies = Policies()
    put(policies, b"a\\*b", 1)
    assert policies.of(b"a*b").ttl == 1
    assert policies.of(b"axb") is NO_POLICY


def test_a_change_shows_at_once() -> None:
    policies = Policies()
    put(policies, b"*", 1)
    assert policies.of(b"q").ttl == 1
    put(policies, b"q", 2)
    assert policies.of(b"q").ttl == 2
    delete(policies, b"q")
    assert policies.of(b"q").ttl == 1
    delete(policies, b"*")
    assert policies.of(b"q") is NO_POLICY
    assert policies.count == 0


def test_dead_letters_that_a_pattern_matches_stay_where_they_are() -> None:
    policies = Policies()
    policies.put(policies.make(b"*", policy(b"*", 5, b"dead", 3), A, 0))
    assert policies.of(b"q").dead == b"dead"
    found = policies.of(b"dead")
    assert (found.dead, found.attempts, found.ttl) == (b"", 0, 5)


def test_many_queues_do_not_pile_up() -> None:
    policies = Policies()
    put(policies, b"*", 1)
    for number in range(25_000):
        assert policies.of(b"%d" % number).ttl == 1
    assert len(policies._cache) <= 10_000
    assert policies.of(b"x" * 2_000).ttl == 1
    assert b"x" * 2_000 not in policies._cache


def test_the_later_change_counts_whatever_comes_first() -> None:
    first, second = Policies(), Policies()
    old = put(first, b"q", 1)
    new = put(first, b"q", 2)
    assert second.put(new)
    assert not second.put(old)
    assert second.of(b"q").ttl == 2
    assert second.digest == first.digest


def test_of_two_changes_at_once_that_of_the_higher_node_id_counts() -> None:
    one, two = Policies(), Policies()
    a, b = put(one, b"q", 1, A), put(two, b"q", 2, B)
    assert one.put(b)
    assert not two.put(a)
    assert one.digest == two.digest
    assert one.of(b"q").ttl == two.of(b"q").ttl == 2


def test_two_changes_with_one_version_end_as_one_everywhere() -> None:
    one, two = Policies(), Policies()
    a, b = put(one, b"q", 1), put(two, b"q", 2)
    one.put(b)
    two.put(a)
    assert one.digest == two.digest


def test_a_change_is_later_than_all_that_the_node_heard_of() -> None:
    one, two = Policies(), Policies()
    for ttl in range(1, 10):
        two.put(put(one, b"q", ttl, B))
    put(two, b"q", 99, A)
    assert one.put(two.entries[b"q"])
    assert one.of(b"q").ttl == 99


def test_what_was_deleted_does_not_come_back() -> None:
    policies = Policies()
    old = put(policies, b"q", 1)
    delete(policies, b"q")
    assert not policies.put(old)
    assert policies.of(b"q") is NO_POLICY


def test_deletions_are_forgotten_after_a_while() -> None:
    policies = Policies()
    put(policies, b"kept", 1)
    before = policies.digest
    put(policies, b"q", 1)
    delete(policies, b"q", now=1_000)
    assert not policies.forget_deleted(1_000)
    assert policies.forget_deleted(1_001)
    assert policies.digest == before
    assert list(policies.entries) == [b"kept"]
    assert DELETED_TTL > 86_400_000


def test_of_too_many_deletions_the_first_are_forgotten() -> None:
    policies = Policies()
    for number in range(MAX_DELETED + 5):
        delete(policies, b"%d" % number)
    assert len(policies.entries) == MAX_DELETED
    assert b"4" not in policies.entries
    assert b"5" in policies.entries


def test_the_first_are_those_that_have_not_changed_since() -> None:
    policies = Policies()
    for number in range(MAX_DELETED):
        delete(policies, b"%d" % number)
    put(policies, b"0", 1)
    for _ in range(2 * MAX_DELETED):  # it keeps track of those that are left, too
        put(policies, b"1", 1)
        delete(policies, b"1")
    old = policies.entries[b"2"]
    assert policies.undo(delete(policies, b"2"), old)
    for number in range(3):
        delete(policies, b"new %d" % number)
    assert policies.entries.keys() >= {b"0", b"1", b"new 0", b"new 1", b"new 2", b"4"}
    assert policies.entries.keys().isdisjoint({b"2", b"3"})


def test_one_that_is_there_again_is_not_forgotten_with_the_deletions() -> None:
    policies = Policies()
    for number in range(MAX_DELETED):
        delete(policies, b"%d" % number)
    put(policies, b"0", 1)
    for number in range(2):
        delete(policies, b"new %d" % number)
    assert b"0" in policies.entries
    assert b"1" not in policies.entries


def test_sizes_are_kept() -> None:
    policies = Policies()
    put(policies, b"a*", 1)
    put(policies, b"b", 1)
    assert (policies.count, policies.patterns) == (2, 1)
    delete(policies, b"a*")
    assert (policies.count, policies.patterns) == (1, 0)
    policies.clear()
    assert (policies.count, policies.size, policies.digest, policies.clock) == (0, 0, 0, 0)


def test_where_other_nodes_told_too_many_one_that_does_not_grow_may_be_changed() -> None:
    policies = Policies()
    value = put(policies, b"q", 1).value
    assert value is not None
    policies.size = MAX_SIZE + 1
    policies.check(b"q", value, 0)
    with pytest.raises(SharedError, match="more than"):
        policies.check(b"q", value, 1)


def test_an_entry_arrives_as_it_was_sent() -> None:
    full = Policy(b"mail.*")
    full.attempts, full.dead, full.backoff_min, full.backoff_max = 3, b"dead", 500, 60_000
    full.dead_ttl, full.ttl, full.retry, full.replicate = 9, 8, 7, 6
    entry = Entry(full.name, full, 5, A, 0)
    read = Policies().read_entry(entry.fields())
    assert read.packed == entry.packed
    assert read.value is not None
    assert vars_of(read.value) == vars_of(full)
    gone = Entry(b"q", None, 6, B, 12_345)
    read = Policies().read_entry(gone.fields())
    assert (read.value, read.clock, read.node, read.deleted) == (None, 6, B, 12_345)


def vars_of(one: Policy) -> list[object]:
    return [
        one.name, one.attempts, one.dead, one.backoff_min, one.backoff_max, one.dead_ttl, one.ttl,
        one.retry, one.replicate,
    ]  # fmt: skip


NAMED = [(1, b"q"), (2, pack_number(1)), (3, A)]


@pytest.mark.parametrize(
    "fields",
    [
        [],
        NAMED[1:],
        NAMED[:2],
        [NAMED[0], NAMED[2]],
        [(1, b"x" * (MAX_NAME + 1)), *NAMED[1:]],
        [NAMED[0], (2, pack_number(MAX_CLOCK + 1)), NAMED[2]],
        [NAMED[0], (2, b"1"), NAMED[2]],
        [*NAMED[:2], (3, b"a")],
        [*NAMED, (6, b"q")],
        [*NAMED, (6, b"x" * (MAX_NAME + 1))],
        [*NAMED, (5, pack_number(2**60))],
        [*NAMED, (5, b"")],
        [*NAMED, (7, pack_number(2)), (8, pack_number(1))],
        [*NAMED, (8, pack_number(1))],
        [*NAMED, (11, pack_number(0))],
    ],
)
def test_malformed_entries_are_refused(fields: list[tuple[int, bytes]]) -> None:
    with pytest.raises((FieldsError, SharedError)):
        Policies().read_entry(pack_fields(fields))


def test_a_node_has_an_attribute_for_each_field_of_the_table() -> None:
    fields = [field for option in OPTIONS for field in option.fields.items()]
    assert len({type for _, type in fields}) == len(fields)
    for option in OPTIONS:
        unset = [getattr(NO_POLICY, attribute) for attribute in option.fields]
        assert unset == [option.unset] * len(unset)
    groups = next(option for option in OPTIONS if option.name == "groups")
    assert (groups.words.index("fair") + 1, groups.words.index("fifo") + 1) == (FAIR, FIFO)
