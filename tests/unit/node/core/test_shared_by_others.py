"""What other nodes say of what all nodes share is believed only as far as the file would take
it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disque_trio.node.core import pause_words
from disque_trio.node.core.queue_pauses import KnownPauses
from disque_trio.node.core.shared import binding_words, policy_words, schedule_words
from disque_trio.node.core.shared.bindings import Bindings
from disque_trio.node.core.shared.policies import Policies, Policy
from disque_trio.node.core.shared.schedules import Schedules
from disque_trio.node.core.shared.sharing import WARN_EVERY, Sharing
from disque_trio.node.core.shared.versions import MAX_AHEAD, MAX_CLOCK, SharedError, Versions
from disque_trio.protocol.fields import FieldsError, pack_fields, pack_number
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench

NODE = b"f" * 40
DAY = 86_400_000  # ms
Fields = list[tuple[int, bytes]]


def parse_policies(text: bytes, policies: Policies) -> list[str]:
    return policy_words.parse_file(text, policies, {})


KINDS: dict[str, tuple[Callable[[], Any], Callable[[Any], Iterator[bytes]], Any]] = {
    "policies": (Policies, lambda known: policy_words.format_file(known, {}), parse_policies),
    "schedules": (Schedules, schedule_words.format_file, schedule_words.parse_file),
    "bindings": (Bindings, binding_words.format_file, binding_words.parse_file),
    "pauses": (KnownPauses, pause_words.format_file, pause_words.parse_file),
}


def kinds_of(bench: Bench) -> dict[str, Sharing[Any]]:
    node = bench.node
    return {
        "policies": node.policy_sharing,
        "schedules": node.ticks.sharing,
        "bindings": node.topics.sharing,
        "pauses": node.queue_pauses.sharing,
    }


def entry(name: bytes, *more: tuple[int, bytes], clock: int = 1, node: bytes = NODE) -> bytes:
    """An entry as another node sends it."""
    return pack_fields([(1, name), (2, pack_number(clock)), (3, node), *more])


DELETED: Fields = [(4, b""), (13, pack_number(1_700_000_000_000))]
SET: dict[str, Fields] = {
    "policies": [(10, pack_number(5))],
    "schedules": [(20, b"@every 9s"), (22, pack_number(0)), (23, b"q"), (24, b"body"), (25, b"")],
    "bindings": [],
    "pauses": [(20, pack_number(1))],
}


@pytest.mark.parametrize("node", [b"\n" + b"z" * 39, b"F" * 40, b"f" * 39, b"f" * 41, b""])
@pytest.mark.parametrize("kind", KINDS)
def test_an_entry_whose_node_has_no_id_is_not_taken_and_the_others_are(
    kind: str, node: bytes
) -> None:
    bench = Bench()
    sharing = kinds_of(bench)[kind]
    warnings: list[str] = []
    sharing.warn = lambda what, details: warnings.append(details)
    bad = entry(b"x y", *DELETED, node=node)
    good = entry(b"good one", *SET[kind])
    sharing.on_packet(NODE, [(1, bad), (1, good)])
    assert list(sharing._known.entries) == [b"good one"]
    assert bench.info("stats")["shared_changes_refused"] == "1"
    assert warnings == ["expected the id of a node"]
    bench("CONFIG", "RESETSTAT")
    assert bench.info("stats")["shared_changes_refused"] == "0"


BEYOND = pack_number(2**32)


@pytest.mark.parametrize(
    "field",
    [
        *[(type, BEYOND) for type in (5, 9, 10, 11, 20, 24)],
        (8, pack_number(2**32 * 1000)),
        (12, pack_number(65_536)),
        (25, pack_number(2**48 + 1)),
        (6, b"x" * 4_097),
    ],
)
def test_numbers_that_cannot_be_set_are_not_taken(field: tuple[int, bytes]) -> None:
    with pytest.raises(SharedError):
        Policies().read_entry(entry(b"q", (7, pack_number(1)), (8, pack_number(1)), field))


def test_a_rate_that_cannot_be_set_is_not_taken() -> None:
    for rate, burst in ((2**32, 1), (1, 2**32)):
        fields = [(21, pack_number(rate)), (22, pack_number(60)), (23, pack_number(burst))]
        with pytest.raises(SharedError):
            Policies().read_entry(entry(b"q", *fields))


def set_all(bench: Bench) -> None:
    """Change something of each kind."""
    assert bench("QSET", "mail", "ATTEMPTS", 3) == b"OK"
    assert bench("CRON", "SET", "s", "@every 9s", "q", "body") == b"OK"
    assert bench("BIND", "topic", "q") == b"OK"
    assert bench("PAUSE", "q", "in", "bcast") == b"in"


@pytest.mark.parametrize("clock", [MAX_CLOCK, 2**48, MAX_AHEAD + 1])
def test_a_clock_that_is_far_ahead_is_not_taken_and_ends_no_changes(clock: int) -> None:
    bench = Bench()
    for sharing in kinds_of(bench).values():
        sharing.on_packet(NODE, [(1, entry(b"x y", *DELETED, clock=clock))])
        assert sharing._known.clock == 0
    assert bench.info("stats")["shared_changes_refused"] == "4"
    set_all(bench)


def test_a_clock_that_is_ahead_by_less_is_taken() -> None:
    bench = Bench()
    sharing = bench.node.policy_sharing
    bench("QSET", "q", "TTL", 1)
    packet = [(1, entry(b"x", *SET["policies"], clock=1 + MAX_AHEAD + more)) for more in (0, 1)]
    sharing.on_packet(NODE, packet)  # the second one is not judged by the first one
    assert bench.node.policies.clock == 1 + MAX_AHEAD
    assert sharing.refused == 1


def test_a_clock_that_an_earlier_release_believed_does_not_end_changes() -> None:
    policies = Policies()
    assert parse_policies(b"clock %d\n" % 2**48, policies) == []
    made = policies.make(b"q", Policy(b"q"), NODE, 0)
    assert policies.put(made)


def test_of_what_is_not_taken_the_log_hears_once_in_a_while() -> None:
    bench = Bench()
    sharing = bench.node.policy_sharing
    warnings: list[str] = []
    sharing.warn = lambda what, details: warnings.append(details)
    for _ in range(100):
        sharing.on_packet(NODE, [(1, entry(b"x", clock=2**40))])
    assert warnings == ['the logical clock of "x" is too far ahead']
    bench.node.now += WARN_EVERY
    sharing.on_packet(NODE, [(1, entry(b"x", clock=2**40))])
    assert len(warnings) == 2
    assert sharing.refused == 101


def test_a_schedule_that_is_said_to_be_done_far_in_the_future_goes_on() -> None:
    bench = Bench()
    sharing = bench.node.ticks.sharing
    known = bench.node.ticks.schedules.entries
    late = pack_number(bench.now + 2 * DAY)
    bench.node.now = bench.now
    sharing.on_packet(NODE, [(1, entry(b"s", *SET["schedules"], (14, late)))])
    assert known[b"s"].reached == bench.now
    told = [(1, b"s"), (2, late), (3, pack_number(1)), (4, NODE)]
    sharing.on_packet(NODE, [(4, pack_fields(told))])
    assert known[b"s"].reached == bench.now
    told[1] = (2, pack_number(bench.now + 1000))
    sharing.on_packet(NODE, [(4, pack_fields(told))])
    assert known[b"s"].reached == bench.now + 1000


def test_what_a_schedule_missed_lately_is_still_missed_on_a_node_that_hears_of_it() -> None:
    bench = Bench()
    bench.node.now = bench.now
    before = bench.now - DAY // 24
    done = (14, pack_number(before))
    bench.node.ticks.sharing.on_packet(NODE, [(1, entry(b"s", *SET["schedules"], done))])
    assert bench.node.ticks.schedules.entries[b"s"].reached == before


def test_a_schedule_is_not_said_to_be_done_after_the_end_of_time() -> None:
    with pytest.raises(SharedError):
        Schedules().read_entry(entry(b"s", *SET["schedules"], (14, pack_number(2**48 + 1))))


@pytest.mark.parametrize("kind", ["policies", "bindings", "pauses"])
def test_only_schedules_are_said_to_be_done(kind: str) -> None:
    bench = Bench()
    sharing = kinds_of(bench)[kind]
    time = pack_number(bench.now)
    sharing.on_packet(NODE, [(1, entry(b"t q", *SET[kind], (14, time)))])
    told = [(1, b"t q"), (2, time), (3, pack_number(1)), (4, NODE)]
    sharing.on_packet(NODE, [(4, pack_fields(told))])
    make, dump, parse = KINDS[kind]
    again = make()
    parse(b"".join(dump(sharing._known)), again)
    assert sharing._known.count == 1
    assert again.digest == sharing._known.digest


# ---- newer releases -----------------------------------------------------------------------------

NEW = (77, b"what a newer release knows")


def test_what_is_not_known_of_a_policy_stays_and_the_rest_counts() -> None:
    mesh = Mesh(2)
    data = entry(b"q", NEW, *SET["policies"])
    mesh[0].node.policy_sharing.on_packet(NODE, [(1, data)])
    assert mesh[0]("QGET", "q") == [b"name", b"q", b"ttl", 5]
    assert mesh[0].info("queues")["shared_of_newer_releases"] == "1"
    mesh[0].node.cron(mesh[0].now + 10_000)
    mesh[1].node.policy_sharing.compare(mesh.ids[0])
    mesh.settle()
    assert mesh[1].node.policies.entries[b"q"].fields() == data
    text = b"".join(policy_words.format_file(mesh[1].node.policies, {}))
    again = Policies()
    assert parse_policies(text, again) == []
    assert again.entries[b"q"].fields() == data
    mesh[0]("QSET", "q", "RETRY", 7)
    values = {NEW[0]: NEW[1], 10: pack_number(5), 11: pack_number(7)}
    policy = mesh[0].node.policies.named(b"q")
    assert policy is not None
    assert dict(policy.fields()) == values
    mesh[0]("QDEL", "q")
    assert mesh[0].info("queues")["shared_of_newer_releases"] == "0"


def test_values_that_are_not_known_stay_until_somebody_sets_the_option() -> None:
    bench = Bench()
    day = [(21, pack_number(9)), (22, pack_number(86_400)), (23, pack_number(3))]
    bench.node.policy_sharing.on_packet(NODE, [(1, entry(b"q", *day, (30, pack_number(3))))])
    assert bench("QGET", "q") == [b"name", b"q"]
    bench("QSET", "q", "TTL", 5)
    policy = bench.node.policies.named(b"q")
    assert policy is not None
    assert dict(policy.fields()) == {10: pack_number(5), **dict(day), 30: pack_number(3)}
    bench("QSET", "q", "RATE", "1/s", "GROUPS", "fair")
    assert bench("QGET", "q") == [
        b"name", b"q", b"ttl", 5, b"rate", b"1/s", b"groups", b"fair",
    ]  # fmt: skip
    assert bench.node.policies.strange == 0


@pytest.mark.parametrize("more", [NEW, (22, pack_number(8))])
def test_a_schedule_with_something_that_is_not_known_is_left_to_newer_nodes(
    more: tuple[int, bytes],
) -> None:
    bench = Bench()
    fields = dict([*SET["schedules"], more])
    data = entry(b"s", *fields.items())
    bench("CRON", "SET", "s", "@every 1s", "q", "old", "RETRY", 1)
    known = bench.node.ticks.schedules
    bench.node.ticks.sharing.on_packet(NODE, [(1, entry(b"s", *fields.items(), clock=2))])
    bench.advance(30)
    assert bench.number_queued() == 0
    assert bench("CRON", "GET", "s") is None
    assert bench("CRON", "LIST") == []
    assert (known.count, known.strange) == (0, 1)
    again = Schedules()
    assert schedule_words.parse_file(b"".join(schedule_words.format_file(known)), again) == []
    assert again.digest == known.digest
    assert again.entries[b"s"].packed != data
    assert bench("CRON", "SET", "s", "@every 1s", "q", "new", "RETRY", 1) == b"OK"
    bench.advance(10)
    assert bench.number_queued() > 0


def test_who_may_not_change_all_schedules_may_not_change_one_of_an_unknown_queue() -> None:
    bench = Bench()
    bench("ACL", "SETUSER", "eve", "on", "nopass", "~q", "+cron")
    eve = bench.client()
    bench.ask(eve, "AUTH", "eve", "x")
    bench.node.ticks.sharing.on_packet(NODE, [(1, entry(b"s", *SET["schedules"], NEW))])
    assert bench.error_of(eve, "CRON", "SET", "s", "@daily", "q", "body").startswith("NOPERM")
    assert bench.ask(eve, "CRON", "SET", "other", "@daily", "q", "body") == b"OK"


def older(known: Any, *types: int) -> None:
    """Make a node one of a release that does not know fields of these ``types``."""
    known._types -= frozenset(types)


def test_a_cluster_is_upgraded_node_by_node_past_what_only_new_nodes_know() -> None:
    mesh = Mesh(3)
    for bench in mesh.nodes[1:]:
        older(bench.node.ticks.schedules, 21)
        older(bench.node.policies, 24)
    mesh[0]("CRON", "SET", "s", "@every 9s", "TZ", "UTC", "q", "body")
    mesh[0]("QSET", "q", "ACTIVE", 3)
    mesh[0]("PAUSE", "q", "in", "bcast")
    mesh[0]("BIND", "t", "q")
    mesh.settle()
    told = [[kinds_of(bench)[kind]._known.digest for kind in KINDS] for bench in mesh.nodes]
    assert told[0] == told[1] == told[2]
    assert mesh[1]("CRON", "GET", "s") is None
    for bench in mesh.nodes[1:]:  # each starts again, first with the old release, then the new one
        for kind, (make, dump, parse) in KINDS.items():
            old = make()
            older(old, 21, 24)
            text = b"".join(dump(kinds_of(bench)[kind]._known))
            assert parse(text, old) == []
            assert b"".join(dump(old)) == text
            new = make()
            assert parse(text, new) == []
            assert (new.digest, new.strange) == (kinds_of(mesh[0])[kind]._known.digest, 0)
            assert b"newer" not in b"".join(dump(new))


# ---- the file takes whatever is taken -----------------------------------------------------------

NUMBERS = st.sampled_from([0, 1, 2, 3, 4, 5, 8, 60, 86_400, 2**16, 2**31, 2**32, 2**48, 2**63])
VALUES = (
    NUMBERS.map(pack_number)
    | st.integers(0, 2**64 - 1).map(pack_number)
    | st.binary(max_size=12)
    | st.sampled_from([b"q", b"t q", b"@every 9s", b"UTC", NODE, b"\n" + NODE[1:]])
)
TYPES = st.integers(1, 31) | st.integers(0, 255)
HEADS = st.sampled_from([b"t q", b"q", b"* x", b'\n "\xff']).map(
    lambda name: [(1, name), (2, pack_number(7)), (3, NODE)]
)
ENTRIES = st.builds(
    lambda head, more: pack_fields(head + more),
    HEADS | st.just([]),
    st.lists(st.tuples(TYPES, VALUES), max_size=6),
)


@pytest.mark.parametrize("kind", KINDS)
@given(found=st.lists(ENTRIES, max_size=5))
def test_what_another_node_says_is_refused_or_written_and_read_again(
    kind: str, found: list[bytes]
) -> None:
    make, dump, parse = KINDS[kind]
    known: Versions[Any] = make()
    for data in found:
        try:
            known.put(known.read_entry(data))
        except (FieldsError, SharedError):
            continue
    again = make()
    assert parse(b"".join(dump(known)), again) == []
    assert (again.digest, again.clock, again.count) == (known.digest, known.clock, known.count)
    assert again.strange == known.strange
    for name, one in known.entries.items():
        assert again.entries[name].fields() == one.fields()
