"""Limits of groups: GROUPACTIVE, GROUPRATE and GROUPBURST, on one node and shared among several."""

import random
from collections import Counter

import pytest

from disque_trio.node.core.queues.shares import SPARED, VALID
from disque_trio.respserver.client import Client
from tests.support.come_and_go import come_and_go
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench, counted_extras
from tests.support.policies import set_policy


@pytest.fixture
def bench() -> Bench:
    return Bench(jitter=0)


def add(bench: Bench, group: str, *options: str | int) -> bytes:
    return bench.add("q", group or "-", *(("GROUP", group) if group else ()), *options)


def in_hand(*benches: Bench) -> Counter[bytes]:
    """How many jobs of each group clients have."""
    found: Counter[bytes] = Counter()
    for bench in benches:
        for (_, group), limit in bench.node.limits.of_groups.in_use.items():
            if limit.in_hand:
                found[group] += len(limit.in_hand)
    return found


# ---- GROUPACTIVE ------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", ["fair", "fifo"])
def test_each_group_has_so_many_in_hand_and_holds_up_no_other(bench: Bench, groups: str) -> None:
    set_policy(bench, groups=groups, group_active=1)
    a = [add(bench, "a") for _ in range(5)]
    b = [add(bench, "b") for _ in range(2)]
    alone = [add(bench, "") for _ in range(2)]
    assert bench.get_all() == [a[0], b[0], alone[0]]
    assert bench.get_all() == []
    waiting = bench.block()
    assert bench("ACKJOB", b[0]) == 1
    assert bench.got(waiting) == b[1]
    c = add(bench, "c")
    assert bench.get_all() == [c]
    assert in_hand(bench) == {b"a": 1, b"b": 1, b"": 1, b"c": 1}
    assert bench.number_queued() == 5


def test_several_may_be_in_hand(bench: Bench) -> None:
    set_policy(bench, groups="fair", group_active=3)
    ids = [add(bench, "a") for _ in range(7)]
    assert bench.get_all() == ids[:3]
    assert bench("ACKJOB", *ids[:2]) == 2
    assert bench.get_all() == ids[3:5]


@pytest.mark.parametrize("ending", ["ACKJOB", "FASTACK", "DELJOB", "NACK", "CANCEL", "ENQUEUE"])
def test_what_ends_a_delivery_lets_the_next_one_go(bench: Bench, ending: str) -> None:
    set_policy(bench, groups="fair", group_active=1)
    first, second = add(bench, "a"), add(bench, "a")
    assert bench.get() == first
    waiting = bench.block()
    bench.advance(20)
    assert bench(ending, first) == 1
    assert bench.got(waiting) == (second if ending not in ("NACK", "ENQUEUE") else first)
    assert in_hand(bench) == {b"a": 1}


def test_a_retry_lets_the_next_one_go(bench: Bench) -> None:
    set_policy(bench, groups="fair", group_active=1)
    first = add(bench, "a", "RETRY", 10)
    assert bench.get() == first
    add(bench, "a")
    waiting = bench.block()
    bench.advance(11)
    assert bench.got(waiting) == first


def test_the_limit_of_the_queue_counts_as_well(bench: Bench) -> None:
    set_policy(bench, groups="fair", group_active=1, active=2)
    ids = [add(bench, name) for name in ("a", "a", "b", "c")]
    assert bench.get_all() == [ids[0], ids[2]]
    bench("ACKJOB", ids[0])
    assert bench.get_all() in ([ids[1]], [ids[3]])


def test_those_that_consume_get_the_next_one_as_soon_as_it_may_go(bench: Bench) -> None:
    set_policy(bench, groups="fair", group_active=1)
    client = bench.client()
    client.resp = 3
    assert bench.ask(client, "CONSUME", "q", "CREDIT", 10) == b"OK"
    ids = [add(bench, name) for name in ("a", "a", "b")]
    assert [push[2] for push in bench.pushes(client)] == [ids[0], ids[2]]
    bench.ask(client, "ACKJOB", ids[0])
    assert [push[2] for push in bench.pushes(client)] == [ids[1]]
    add(bench, "b")
    bench.disconnect(client)
    bench.advance(0.001)
    assert set(bench.get_all()) == {ids[1], ids[2]}


def test_a_limit_that_is_lifted_or_raised_lets_those_go_who_wait(bench: Bench) -> None:
    set_policy(bench, groups="fair", group_active=1)
    ids = [add(bench, "a") for _ in range(4)]
    assert bench.get_all() == ids[:1]
    waiting = bench.block()
    assert bench("QSET", "q", "GROUPACTIVE", 2) == b"OK"
    bench.advance(0.001)
    assert bench.got(waiting) == ids[1]
    waiting = bench.block()
    assert bench("QSET", "q", "GROUPACTIVE", 0) == b"OK"
    bench.advance(0.001)
    assert bench.got(waiting) == ids[2]
    assert bench("QSET", "q", "GROUPACTIVE", 1) == b"OK"
    assert bench.get() is None
    waiting = bench.block()
    assert bench("QDEL", "q") == 1
    bench.advance(0.001)
    assert bench.got(waiting) == ids[3]
    for id in ids:
        assert bench("ACKJOB", id) == 1
    bench.advance(5)
    assert bench.node.limits.of_groups.in_use == {}


def test_groups_that_are_not_used_any_more_are_forgotten(bench: Bench) -> None:
    set_policy(bench, groups="fair", group_active=1)
    before = bench.node.memory.used
    ids = [add(bench, f"group {number}") for number in range(100)]
    assert bench.get_all() == ids
    assert len(bench.node.limits.of_groups.in_use) == 100
    assert bench.node.memory.used == bench.counted_memory()
    bench("ACKJOB", *ids)
    bench.advance(5)
    assert bench.node.limits.of_groups.in_use == {}
    assert counted_extras(bench.node) < 100_000
    bench.evict_idle_queues()
    assert bench.node.memory.used - before < 100_000


def test_many_groups_at_their_limits_do_not_make_a_turn_long(bench: Bench) -> None:
    set_policy(bench, groups="fair", group_active=1)
    for _ in range(2):
        for number in range(3_000):
            add(bench, str(number))
    assert len(bench.get_all()) == 3_000
    waiting = bench.block()
    assert bench.queue()[b"groups-held-back"] == 2_000  # a thousand when asked for more
    bench.advance(0.01)
    assert bench.queue()[b"groups-held-back"] == 3_000
    last = add(bench, "another")
    bench.advance(0.01)
    assert bench.got(waiting) == last


def test_what_is_held_back_is_shown(bench: Bench) -> None:
    set_policy(bench, groups="fair", group_active=1)
    ids = [add(bench, name) for name in ("a", "a", "b")]
    assert bench.get_all() == [ids[0], ids[2]]
    bench.block()
    shown = bench.queue()
    assert (shown[b"groups"], shown[b"groups-held-back"]) == (1, 1)
    assert bench.info("queues")["queues_held_by_groups"] == "1"
    bench("DEBUG", "FLUSHALL")
    assert bench.node.limits.of_groups.in_use == {}
    assert bench.node.memory.used == bench.counted_memory()


def test_flushed_jobs_are_not_in_hand(bench: Bench) -> None:
    set_policy(bench, groups="fair", group_active=1)
    add(bench, "a")
    assert bench.get() is not None
    bench("DEBUG", "FLUSHALL")
    id = add(bench, "a")
    assert bench.get() == id


# ---- GROUPRATE --------------------------------------------------------------------------------


def test_each_group_has_its_rate(bench: Bench) -> None:
    set_policy(bench, groups="fair", group_rate=5, group_period=1)
    for _ in range(20):
        add(bench, "a")
        add(bench, "b")
    client = bench.client()
    assert bench.ask(client, "HELLO", 3)
    assert bench.ask(client, "CONSUME", "q", "CREDIT", 100) == b"OK"
    groups: Counter[bytes] = Counter()
    for tenth in range(20):
        bench.advance(0.1)
        groups.update(push[3] for push in bench.pushes(client))
        most = (tenth + 1) / 2 + 2
        assert all(count <= most for count in groups.values())
    assert min(groups.values()) >= 10
    c = add(bench, "c")
    assert [push[2] for push in bench.pushes(client)] == [c]


def test_a_burst_of_a_group_after_a_pause(bench: Bench) -> None:
    set_policy(bench, groups="fair", group_rate=10, group_period=1, group_burst=5)
    ids = [add(bench, "a") for _ in range(30)]
    assert bench.get_all() == ids[:5]
    bench.advance(0.2)
    assert len(bench.get_all()) == 2
    bench.advance(100)
    assert len(bench.get_all()) == 5


def test_one_in_a_minute_is_remembered_without_clients_and_then_forgotten(bench: Bench) -> None:
    set_policy(bench, groups="fair", group_rate=1, group_period=60)
    for _ in range(3):
        add(bench, "a")
    assert bench.get() is not None
    bench.advance(50)
    assert bench.get() is None
    bench.advance(11)
    assert bench.get() is not None
    assert len(bench.node.limits.of_groups.in_use) == 1
    bench.advance(100)
    assert bench.node.limits.of_groups.in_use == {}


def test_a_faster_rate_does_not_wait_for_what_a_slower_one_owes(bench: Bench) -> None:
    set_policy(bench, groups="fair", group_rate=1, group_period=3_600)
    for _ in range(3):
        add(bench, "a")
    assert bench.get() is not None
    waiting = bench.block()
    bench.advance(1)
    assert bench("QSET", "q", "GROUPRATE", "1/s") == b"OK"
    bench.advance(1.1)
    assert not waiting.blocked


def test_a_clock_that_goes_back_stops_no_group(bench: Bench) -> None:
    set_policy(bench, groups="fair", group_rate=1, group_period=1)
    for _ in range(5):
        add(bench, "a")
    assert bench.get() is not None
    waiting = bench.block()
    bench.node.cron(bench.now)
    bench.now -= 3_600_000
    bench.node.cron(bench.now)
    bench.advance(2.5)
    assert not waiting.blocked


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("GROUPACTIVE", 1), "GROUPACTIVE needs GROUPS"),
        (("GROUPRATE", "5/s"), "GROUPRATE needs GROUPS"),
        (("GROUPS", "fair", "GROUPBURST", 5), "GROUPBURST needs GROUPRATE"),
        (("GROUPS", "fair", "GROUPRATE", "5/x"), "GROUPRATE must be a number"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    bench: Bench, words: tuple[str | int, ...], text: str
) -> None:
    assert text in bench.error("QSET", "q", *words)


def test_the_options_are_shown_and_unset(bench: Bench) -> None:
    words = ("GROUPS", "fair", "GROUPACTIVE", 2, "GROUPRATE", "5/s", "GROUPBURST", 10)
    assert bench("QSET", "q", *words) == b"OK"
    shown = bench("QGET", "q")
    assert shown[2:] == [
        *(b"groups", b"fair", b"groupactive", 2, b"grouprate", b"5/s", b"groupburst", 10)
    ]
    assert bench("QSET", "q", "GROUPRATE", 0) == b"OK"
    assert bench("QGET", "q")[2:] == [b"groups", b"fair", b"groupactive", 2]


# ---- several nodes ----------------------------------------------------------------------------


def mesh_with(jobs: int, groups: str = "ab", **policy: int) -> Mesh:
    """Return three nodes, each with ``jobs`` of each group in its queue."""
    mesh = Mesh(3)
    set_policy(*mesh.nodes, groups="fair", **policy)
    for index in range(3):
        for _ in range(jobs):
            for group in groups:
                mesh.add(index, "REPLICATE", 1, "GROUP", group)
    return mesh


def waiting_on_all(mesh: Mesh, each: int) -> list[tuple[int, Client]]:
    found = [(index, mesh[index].client()) for index in range(3) for _ in range(each)]
    for index, client in found:
        mesh[index].send(client, "GETJOB", "FROM", "q")
    return found


def test_nodes_ask_each_other_before_they_deliver() -> None:
    mesh = mesh_with(3, group_active=2)
    client = mesh[0].block()
    assert client.blocked
    mesh.advance(0.001)
    mesh[0].got(client)
    assert len(mesh.told("question")) > 0


def test_a_get_that_does_not_wait_waits_for_the_answers() -> None:
    mesh = mesh_with(3, group_active=2)
    client = mesh[0].client()
    mesh[0].send(client, "GETJOB", "NOHANG", "FROM", "q")
    assert client.blocked
    mesh.advance(0.001)
    mesh[0].got(client)


@pytest.mark.parametrize("active", [1, 2, 3, 5])
def test_it_is_shared_and_used_up(active: int) -> None:
    mesh = mesh_with(5, group_active=active)
    waiting_on_all(mesh, 10)
    mesh.advance(0.1)
    assert in_hand(*mesh.nodes) == {b"a": active, b"b": active}
    mesh.advance(10)
    assert in_hand(*mesh.nodes) == {b"a": active, b"b": active}


def test_what_one_node_no_longer_has_in_hand_another_one_gives_at_once() -> None:
    mesh = mesh_with(0, group_active=1)
    mesh.add(0, "REPLICATE", 1, "GROUP", "a")
    mesh.add(1, "REPLICATE", 1, "GROUP", "a")
    client = mesh[0].block()
    mesh.advance(0.1)
    first = mesh[0].got(client)
    waiting = mesh[1].block()
    mesh.advance(5)
    assert waiting.blocked
    assert mesh[0]("ACKJOB", first) == 1
    mesh.advance(0.005)
    mesh[1].got(waiting)


def test_a_share_that_is_not_used_goes_to_those_that_wait() -> None:
    """Node 0 could have a job of the group, but its only client works on another one."""
    mesh = mesh_with(2, "a", group_active=1)
    client = mesh[0].block()
    mesh.advance(0.1)
    first = mesh[0].got(client)
    waiting = [mesh[index].block() for index in (1, 2)]
    mesh.advance(1)
    assert mesh[0]("ACKJOB", first) == 1
    mesh.advance((SPARED + 5) / 1000)
    assert sum(not client.blocked for client in waiting) == 1
    assert in_hand(*mesh.nodes) == {b"a": 1}


def test_each_part_of_a_partition_has_the_limit() -> None:
    mesh = mesh_with(9, "a", group_active=2)
    mesh.cut(0, 1)
    mesh.cut(0, 2)
    waiting_on_all(mesh, 4)
    mesh.advance(3)
    assert in_hand(mesh[0]) == {b"a": 2}
    assert in_hand(mesh[1], mesh[2]) == {b"a": 2}


def test_a_node_that_starts_takes_nothing_before_it_could_ask_the_others() -> None:
    mesh = mesh_with(5, "a", group_active=2)
    mesh.isolate(0)
    waiting_on_all(mesh, 4)
    mesh.advance(0.5)
    assert in_hand(mesh[1], mesh[2]) == {}
    mesh.rejoin(0)
    mesh.advance(0.5)
    assert in_hand(*mesh.nodes) == {b"a": 2}


def test_older_nodes_are_not_asked() -> None:
    mesh = mesh_with(5, "a", group_active=2)
    mesh.older.add(2)
    mesh.told()
    clients = [mesh[0].block() for _ in range(5)]
    mesh.advance(0.1)
    assert sum(not client.blocked for client in clients) == 2


def test_a_rate_of_a_group_is_shared() -> None:
    mesh = mesh_with(40, group_rate=20, group_period=1)
    clients = waiting_on_all(mesh, 3)
    mesh.advance(0.001)
    start = mesh[0].now
    got = 0
    while mesh[0].now < start + 3_000:
        mesh.advance(0.001)
        for index, client in clients:
            while not client.blocked:
                mesh[index].replies(client)
                got += 1
                mesh[index].send(client, "GETJOB", "FROM", "q")
    assert 2 * 50 <= got <= 2 * (20 * 3 + 3)


def test_going_from_node_to_node_gives_no_more() -> None:
    mesh = mesh_with(3, "a", group_rate=1, group_period=60)
    got = 0
    for _ in range(4):
        for bench in mesh.nodes:
            client = bench.client()
            bench.send(client, "GETJOB", "TIMEOUT", 10, "FROM", "q")
            mesh.advance(4)
            got += bench.replies(client) != [None]
    assert got == 1


@pytest.mark.parametrize("seed", range(8))
def test_what_is_in_hand_never_exceeds_the_limit(seed: int) -> None:
    """Clients come and go on three nodes, and packets are slow, for a minute."""
    rng = random.Random(seed)
    active = rng.randrange(1, 4)
    mesh = mesh_with(20, "abc", group_active=active)
    most = 0
    for _ in come_and_go(mesh, rng, 6):
        counts = in_hand(*mesh.nodes)
        assert all(count <= active for count in counts.values())
        most = max(most, *counts.values(), 0)
    assert most == active


def test_all_is_delivered_one_by_one_and_then_forgotten() -> None:
    mesh = mesh_with(10, "abcd", group_active=1)
    clients = waiting_on_all(mesh, 2)
    done = 0
    for _ in range(3_000):
        mesh.advance(0.01)
        for index, client in clients:
            if not client.blocked:
                for reply in mesh[index].replies(client):
                    for id in Bench.ids(reply):
                        done += int(mesh[index]("ACKJOB", id) == 1)
                mesh[index].send(client, "GETJOB", "FROM", "q")
        if done == 120:
            break
    assert done == 120
    mesh.advance(2 * VALID / 1000)
    assert all(bench.node.limits.of_groups.in_use == {} for bench in mesh.nodes)


def test_a_malformed_question_changes_nothing() -> None:
    mesh = mesh_with(2, "a", group_active=2)
    for fields in ([], [(2, b"q")], [(2, b"q"), (3, b"a"), (4, b"short")], [(9, b"")]):
        packet = mesh[1].node.rpc.notification(21, fields)
        mesh[0].node.receive(mesh.ids[1], packet, mesh[0].now)
    client = mesh[0].block()
    mesh.advance(0.01)
    mesh[0].got(client)
