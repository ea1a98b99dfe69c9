"""All nodes end up with the same policies, whatever the order and losses of packets."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disque_trio.node.core.shared.policies import Policy
from disque_trio.node.core.shared.sharing import COMPARE_EVERY, MOST_ANSWERS, ONCE_MORE
from disque_trio.node.core.shared.versions import DELETED_TTL, Entry
from disque_trio.protocol import bus
from disque_trio.protocol.fields import pack_number
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench

ASKED = 2  # a digest


def told(bench: Bench) -> object:
    return bench("QGET")


def compare(mesh: Mesh, rounds: int = 1) -> None:
    """Let time pass until each node has compared its policies with another ``rounds`` times."""
    for _ in range(rounds):
        for bench in mesh.nodes:
            bench.now += COMPARE_EVERY
            bench.node.cron(bench.now)
        mesh.settle()


def look(mesh: Mesh, milliseconds: int = 0) -> None:
    """Let the nodes look around, as they do ten times a second, for this time."""
    for _ in range(0, milliseconds + 1, 100):
        for bench in mesh.nodes:
            bench.now += 100
            bench.node.cron(bench.now)
        mesh.settle()


def all_agree(mesh: Mesh) -> bool:
    return len({bench.node.policies.digest for bench in mesh.nodes}) == 1


def test_a_change_is_known_to_all_nodes_at_once() -> None:
    mesh = Mesh(3)
    mesh[0]("QSET", "mail.*", "DEAD", "lost", "ATTEMPTS", 3)
    mesh.settle()
    assert mesh[1].node.policies.of(b"mail.x").attempts == 3
    assert told(mesh[0]) == told(mesh[1]) == told(mesh[2])
    mesh[2]("QDEL", "mail.*")
    mesh.settle()
    assert [told(bench) for bench in mesh.nodes] == [[], [], []]


def test_c_nodes_are_not_told() -> None:
    mesh = Mesh(3)
    mesh.c_nodes.add(2)
    mesh[0]("QSET", "q", "TTL", 1)
    compare(mesh, 5)
    assert {target for _, type, target in mesh.log if type == "policies"} <= {0, 1}
    assert mesh[2].node.policies.count == 0


def test_a_node_that_was_away_learns_and_tells_what_changed() -> None:
    mesh = Mesh(3)
    mesh[0]("QSET", "gone", "TTL", 1)
    mesh.settle()
    mesh.isolate(2)
    mesh[0]("QDEL", "gone")
    mesh[1]("QSET", "here", "TTL", 2)
    mesh[2]("QSET", "there", "TTL", 3)
    compare(mesh)
    mesh.rejoin(2)
    compare(mesh, 5)
    names = [b"here", b"there"]
    assert [[entry[1] for entry in bench("QGET")] for bench in mesh.nodes] == [names] * 3  # type: ignore[attr-defined]


def test_a_new_node_without_policies_is_told_by_those_that_have_some() -> None:
    mesh = Mesh(2)
    mesh.cut(0, 1)
    for number in range(3_000):
        mesh[0]("QSET", f"queue-{number:0200}", "TTL", 1)
    mesh.join(0, 1)
    mesh.log.clear()
    compare(mesh, 2)
    assert mesh[1].node.policies.count == 3_000
    assert mesh.log.count((0, "policies", 1)) > 3  # none of the packets is large


@pytest.mark.parametrize("size", [2, 3, 7])
def test_a_node_that_was_alone_learns_and_tells_at_once_what_changed(size: int) -> None:
    mesh = Mesh(size)
    mesh[0]("QSET", "old", "TTL", 1)
    mesh.settle()
    look(mesh, 1_000)
    mesh.isolate(size - 1)
    mesh[0]("QSET", "q", "TTL", 2)
    mesh[0]("PAUSE", "q", "all", "BCAST")
    mesh[0]("CRON", "SET", "nightly", "@every 1d", "q", "job")
    mesh[0]("BIND", "topic", "q")
    mesh[size - 1]("QSET", "own", "TTL", 3)
    compare(mesh, size)
    mesh.rejoin(size - 1)
    mesh.advance(0)
    assert all_agree(mesh)
    assert [bench("PAUSE", "q", "state") for bench in mesh.nodes] == [b"all"] * size
    assert all(bench("CRON", "GET", "nightly") for bench in mesh.nodes)
    assert [bench("BINDINGS") for bench in mesh.nodes] == [[[b"topic", b"q"]]] * size


def test_a_node_that_starts_without_anything_learns_it_at_once() -> None:
    mesh = Mesh(3)
    mesh.isolate(2)
    mesh[0]("QSET", "q", "TTL", 1)
    compare(mesh, 3)
    mesh.rejoin(2)
    mesh.advance(0)
    assert all_agree(mesh)


def test_nodes_that_could_not_reach_only_each_other_compare_at_once() -> None:
    mesh = Mesh(9)
    mesh[0]("QSET", "old", "TTL", 1)
    mesh.settle()
    look(mesh, 1_000)
    mesh.cut(3, 6)
    mesh[3]("QSET", "q", "TTL", 1)
    mesh.settle()
    look(mesh)
    assert not all_agree(mesh)
    mesh.join(3, 6)
    mesh.advance(0)
    assert all_agree(mesh)


def test_who_did_not_listen_when_it_was_reached_is_asked_again_soon() -> None:
    mesh = Mesh(2)
    mesh.lose = lambda source, target, packet: True
    mesh[0]("QSET", "q", "TTL", 1)
    mesh.join(0, 1)
    mesh.advance(0)
    mesh.lose = lambda source, target, packet: False
    assert mesh[0].node.shared_maps.rest() <= ONCE_MORE
    look(mesh, ONCE_MORE)
    assert all_agree(mesh)


@pytest.mark.slow
def test_a_node_that_returns_to_a_large_cluster_causes_few_packets() -> None:
    mesh = Mesh(140)
    mesh.isolate(139)
    for index, bench in enumerate(mesh.nodes):
        for number in range(5 if index == 139 else 10):
            name = b"%d" % number
            bench.node.policies.put(Entry(name, Policy(name), number + 1, b"a" * 40, 0))
    compare(mesh, 2)
    mesh.told()
    mesh.rejoin(139)
    moved: list[bytes] = []
    mesh.lose = lambda source, target, packet: moved.append(packet) is not None
    mesh.advance(0)
    assert all_agree(mesh)
    look(mesh, 900)
    size = mesh[0].node.policies.size
    assert len([packet for packet in moved if len(packet) > size // 2]) <= 2 * (MOST_ANSWERS + 1)
    assert len(moved) <= 3 * 140


def test_only_so_many_are_told_all_in_a_second() -> None:
    mesh = Mesh(2)
    mesh.lose = lambda source, target, packet: True
    mesh[0]("QSET", "q", "TTL", 1)
    mesh.settle()
    sharing, packet = mesh[0].node.policy_sharing, [(ASKED, pack_number(1))]
    told: list[int] = []
    for time in (0, 999, 1_000, 1_999, 2_000):
        mesh[0].node.now = 1_000_000 + time
        mesh.told()
        for _ in range(MOST_ANSWERS - 1):
            sharing.on_packet(mesh.ids[1], packet)
        told.append(len(mesh.told()))
    assert told == [MOST_ANSWERS - 1, 1] * 2 + [MOST_ANSWERS - 1]


def test_nodes_that_know_the_same_say_little_and_those_that_know_nothing_say_nothing() -> None:
    mesh = Mesh(2)
    compare(mesh, 3)
    assert mesh.told() == []
    mesh[0]("QSET", "q", "TTL", 1)
    mesh.settle()
    look(mesh, ONCE_MORE)  # they have just reached each other
    assert len(mesh.told()) <= 10
    compare(mesh, 3)
    assert len(mesh.told()) == 6


def test_what_two_nodes_change_at_once_ends_the_same_on_all() -> None:
    mesh = Mesh(3)
    mesh[0]("QSET", "q", "TTL", 1)
    mesh[1]("QSET", "q", "TTL", 2)
    mesh.settle()
    assert told(mesh[0]) == told(mesh[1]) == told(mesh[2])


def test_a_node_that_lost_its_disk_does_not_win_with_old_times() -> None:
    mesh = Mesh(2)
    for ttl in range(1, 6):
        mesh[0]("QSET", "q", "TTL", ttl)
    mesh.settle()
    mesh[1].node.policies.clear()
    mesh.cut(0, 1)
    mesh[1]("QSET", "q", "TTL", 99)
    mesh.join(0, 1)
    compare(mesh, 3)
    assert told(mesh[0]) == told(mesh[1]) == [[b"name", b"q", b"ttl", 5]]
    mesh[1]("QSET", "q", "TTL", 99)
    mesh.settle()
    assert told(mesh[0]) == [[b"name", b"q", b"ttl", 99]]


def test_old_deletions_are_forgotten_by_all_and_not_told_again() -> None:
    mesh = Mesh(2)
    mesh[0]("QSET", "q", "TTL", 1)
    mesh[0]("QSET", "p", "TTL", 1)
    mesh[0]("QDEL", "q")
    mesh.settle()
    mesh[0].now += DELETED_TTL + 1
    mesh[0].node.cron(mesh[0].now)
    mesh.settle()  # the other one still has it
    assert b"q" not in mesh[0].node.policies.entries
    mesh[1].now = mesh[0].now
    compare(mesh, 3)
    assert b"q" not in mesh[1].node.policies.entries
    assert all_agree(mesh)


def test_a_deletion_of_the_future_is_forgotten_as_well() -> None:
    bench = Mesh(2)[0]
    entry = Entry(b"q", None, 1, b"a" * 40, 2**63)
    bench.node.policy_sharing.on_packet(b"x", [(1, entry.fields())])
    assert bench.node.policies.entries[b"q"].deleted <= bench.now


def test_a_clock_that_goes_back_does_not_stop_the_comparing() -> None:
    mesh = Mesh(2)
    mesh.cut(0, 1)
    mesh[0]("QSET", "q", "TTL", 1)
    mesh[0].now += 10**12
    mesh[0].node.cron(mesh[0].now)
    mesh.join(0, 1)
    mesh[0].now -= 10**12
    mesh[0].node.cron(mesh[0].now)
    mesh.settle()
    assert mesh[1].node.policies.count == 1


def test_the_disk_is_told_of_what_other_nodes_change_and_only_of_that() -> None:
    mesh = Mesh(2)
    seen: list[int] = []
    for index, bench in enumerate(mesh.nodes):
        bench.node.policy_sharing.changed = lambda names, index=index: seen.append(index)  # type: ignore[misc]
    mesh[0]("QSET", "q", "TTL", 1)
    mesh.settle()
    compare(mesh, 3)
    assert seen == [1]


GOOD = Entry(b"good", Policy(b"good"), 1, b"a" * 40, 0).fields()


@pytest.mark.parametrize(
    "data",
    [
        [(1, b"")],
        [(1, GOOD), (1, GOOD[:-1])],
        [(1, GOOD), (2, b"1234567")],
        [(1, GOOD), (3, b"")],
        [(1, GOOD), (1, GOOD + b"\x05\x01\0\0\0\xff")],
    ],
)
def test_malformed_packets_change_nothing(data: list[tuple[int, bytes]]) -> None:
    mesh = Mesh(2)
    node = mesh[0].node
    packet = mesh[1].node.packets.fields(bus.POLICIES, data)
    node.receive(mesh.ids[1], packet, mesh[0].now)
    assert node.bad_packets == 1
    assert node.policies.entries == {}


def test_fields_that_are_not_known_are_passed_over() -> None:
    mesh = Mesh(2)
    fields = [(99, b"x"), (1, GOOD + b"\x63\x01\0\0\0x"), (2, pack_number(0))]
    node = mesh[0].node
    node.receive(mesh.ids[1], mesh[1].node.packets.fields(bus.POLICIES, fields), mesh[0].now)
    assert node.bad_packets == 0
    assert node.policies.count == 1


@given(st.data())
def test_all_nodes_end_with_the_same_policies_whatever_order_and_loss(data: st.DataObject) -> None:
    mesh = Mesh(3)
    rng = random.Random(data.draw(st.integers(0, 2**32)))
    mesh.lose = lambda source, target, packet: rng.random() < 0.4
    names = st.sampled_from(["q", "mail.*", "*"])
    steps = st.sampled_from(["set", "set", "delete", "cut", "join", "settle", "compare", "wipe"])
    for step in data.draw(st.lists(steps, max_size=25)):
        one = data.draw(st.integers(0, 2))
        other = (one + data.draw(st.integers(1, 2))) % 3
        if step == "set":
            mesh[one]("QSET", data.draw(names), "TTL", data.draw(st.integers(1, 9)))
        elif step == "delete":
            mesh[one]("QDEL", data.draw(names))
        elif step == "cut":
            mesh.cut(one, other)
        elif step == "join":
            mesh.join(one, other)
        elif step == "wipe":  # a node that comes back without its file
            mesh[one].node.policies.clear()
        else:
            moving = list(mesh.moving)
            rng.shuffle(moving)
            mesh.moving.clear()
            mesh.moving.extend(moving)
            if step == "settle":
                mesh.settle()
            else:
                compare(mesh)
    mesh.lose = lambda source, target, packet: False
    for index in range(3):
        mesh.rejoin(index)
    compare(mesh, 8)
    assert all_agree(mesh)
    assert told(mesh[0]) == told(mesh[1]) == told(mesh[2])
