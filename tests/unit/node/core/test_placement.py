"""Which nodes get the copies of a job: partners for a while, and each on a host of its own."""

from collections import Counter
from random import Random

import pytest

from disque_trio.node.core.copies.placement import STAY, Partners
from tests.support.mesh import Mesh

A, B, C = "10.0.0.1", "10.0.0.2", "10.0.0.3"


# ---- partners ----------------------------------------------------------------------------------


def some_ids(count: int) -> list[bytes]:
    return sorted(b"%040x" % Random(n).getrandbits(160) for n in range(count))


def test_all_hold_as_many_copies_if_all_have_as_many_jobs() -> None:
    nodes = some_ids(10)
    held = Counter[bytes]()
    partners = {own: Partners() for own in nodes}
    for n in range(3 * STAY):
        for own in nodes:
            held.update(partners[own].order(own, [id for id in nodes if id != own])[:2])
        assert set(held.values()) == {2 * n + 2}


def test_the_copies_of_queues_of_all_sizes_are_spread() -> None:
    """A thousand queues, the n-th largest of which has an n-th of the jobs of the largest, each on
    one of ten nodes."""
    rng = Random(1)
    nodes = some_ids(10)
    held = Counter[bytes]()
    queues = [Counter[bytes]() for _ in range(3)]
    partners = {own: Partners() for own in nodes}
    home = [rng.choice(nodes) for _ in range(1_000)]
    for queue in rng.choices(range(1_000), [1 / n for n in range(1, 1_001)], k=60_000):
        own = home[queue]
        chosen = partners[own].order(own, [id for id in nodes if id != own])[:2]
        held.update(chosen)
        if queue < len(queues):
            queues[queue].update(chosen)
    assert max(held.values()) < 1.3 * held.total() / len(nodes)
    for copies in queues:
        assert len(copies) == 9
        assert max(copies.values()) < 1.3 * copies.total() / 9


def test_who_joins_or_leaves_changes_no_partner_but_itself() -> None:
    own, *nodes = some_ids(9)
    for gone in nodes:
        partners = Partners()
        for _ in range(STAY + STAY // 2):
            before = partners.order(own, nodes)[:3]
        left = [id for id in nodes if id != gone]
        assert partners.order(own, left)[:2] == [id for id in before if id != gone][:2]
        if gone != before[0]:
            assert partners.order(own, nodes)[:3] == before


def test_jobs_that_are_added_together_go_to_the_same_nodes() -> None:
    mesh = Mesh(7)
    first = mesh.holders(mesh.add(0, "REPLICATE", 3))
    for _ in range(20):
        assert mesh.holders(mesh.add(0, "REPLICATE", 3)) == first
        assert set(mesh.holders(mesh.add(0, "REPLICATE", 2))) < set(first)


def test_jobs_of_one_turn_need_as_few_packets_in_a_large_cluster_as_in_a_small_one() -> None:
    packets = []
    for size in (3, 10):
        mesh = Mesh(size)
        bench = mesh[0]
        for _ in range(2 * STAY // 16):  # a node has to learn that another reads many at once
            mesh.log.clear()
            for _ in range(16):
                bench.send(bench.me, "ADDJOB", "q", "body", 0, "REPLICATE", 3)
            mesh.settle()
            ids = [id for id in bench.replies(bench.me) if isinstance(id, bytes)]
            bench.send(bench.me, "ACKJOB", *ids)
            mesh.settle()
            assert bench.replies(bench.me) == [16]
            assert not any(map(mesh.holders, ids))
        packets.append([type for _, type, _ in mesh.log])
    assert sorted(packets[1]) == sorted(packets[0])
    assert len(packets[0]) == 10


def test_all_nodes_that_can_be_reached_get_copies_in_their_turn() -> None:
    mesh = Mesh(7)
    mesh.peers[0].reachable.remove(mesh.ids[4])
    seen: set[int] = set()
    for _ in range(4 * STAY):
        holders = mesh.holders(mesh.add(0, "REPLICATE", 3))
        assert len(holders) == 3
        seen.update(holders)
    assert seen == {0, 1, 2, 3, 5, 6}


def test_a_partner_that_does_not_answer_is_asked_last() -> None:
    mesh = Mesh(5)
    silent = mesh.holders(mesh.add(0, "REPLICATE", 2))[1]
    mesh.lose = lambda source, target, packet: target == silent
    assert ask(mesh, "REPLICATE", 2) == ""
    mesh.advance(0.06)
    for _ in range(20):  # at once
        assert ask(mesh, "REPLICATE", 2)


# ---- hosts -------------------------------------------------------------------------------------


def spread(*ips: str) -> Mesh:
    mesh = Mesh(len(ips), jitter=None)
    mesh.spread(*ips)
    return mesh


def ask(mesh: Mesh, *args: str | int, timeout: int = 0) -> str:
    """Send ADDJOB to node 0; return its reply, empty if it waits."""
    bench = mesh[0]
    bench.send(bench.me, "ADDJOB", "q", "body", timeout, *args)
    mesh.settle()
    return "".join(r.decode() if isinstance(r, bytes) else str(r) for r in bench.replies(bench.me))


def hosts_of(mesh: Mesh, id: bytes, ips: tuple[str, ...]) -> list[str]:
    return sorted(ips[i] for i in mesh.holders(id))


@pytest.mark.parametrize("options", [(), ("ASYNC",)])
def test_each_copy_is_on_a_host_of_its_own(options: tuple[str, ...]) -> None:
    ips = (A, A, B, B, C, C)
    mesh = spread(*ips)
    for _ in range(20):
        assert hosts_of(mesh, mesh.add(0, "REPLICATE", 3, *options), ips) == [A, B, C]


def test_any_host_can_have_the_copy() -> None:
    ips = (A, A, B, C)
    mesh = spread(*ips)
    seen = [hosts_of(mesh, mesh.add(0, "REPLICATE", 2), ips) for _ in range(4 * STAY)]
    assert {tuple(hosts) for hosts in seen} == {(A, B), (A, C)}


def test_processes_of_two_hosts_keep_to_their_partners() -> None:
    mesh = spread(A, A, B, B)
    for _ in range(10):
        assert mesh.holders(mesh.add(0, "REPLICATE", 2)) == [0, 2]
        assert mesh.holders(mesh.add(1, "REPLICATE", 2)) == [1, 3]


def test_where_the_partner_is_silent_another_node_of_its_host_is_tried() -> None:
    mesh = spread(A, A, B, B)
    mesh.lose = lambda source, target, packet: target == 2
    assert ask(mesh, "REPLICATE", 2) == ""
    mesh.advance(0.06)
    (job,) = mesh[0].node.store.jobs.values()
    assert mesh[0].replies(mesh[0].me) == [job.id]
    assert mesh.holders(job.id) == [0, 3]


def test_a_partner_without_a_connection_is_passed_over() -> None:
    mesh = spread(A, B, B)
    mesh.cut(0, 1)
    assert mesh.holders(mesh.add(0, "REPLICATE", 2)) == [0, 2]


def test_a_partner_that_does_not_know_what_belongs_to_a_job_is_passed_over() -> None:
    mesh = spread(A, B, B)
    mesh.lose = lambda source, target, packet: True
    mesh[0].send(mesh[0].me, "ADDJOB", "q", "body", 0, "REPLICATE", 1, "GROUP", "g")
    (job,) = mesh[0].node.store.jobs.values()
    mesh.lose = lambda source, target, packet: False
    mesh.peers[0].extended = False
    mesh.peers[0].as_c.add(mesh.ids[1])
    job.repl = 2
    mesh[0].node.copies.want(job)
    mesh.settle()
    assert mesh.holders(job.id) == [0, 2]


def test_two_copies_on_one_host_count_once() -> None:
    ips = (A, B, B, C, C)
    mesh = spread(*ips)
    silent = {3, 4}
    late = list[tuple[int, bytes]]()

    def lose(source: int, target: int, packet: bytes) -> bool:
        if source in (1, 2) and target == 0 and len(late) < 1:
            late.append((source, packet))  # the first confirmation comes later
            return True
        return target in silent

    mesh.lose = lose
    assert ask(mesh, "REPLICATE", 3) == ""
    mesh.advance(0.3)  # the other node of B is asked, and confirms
    (job,) = mesh[0].node.store.jobs.values()
    assert {1, 2} <= set(mesh.holders(job.id))
    source, packet = late[0]
    mesh[0].node.receive(mesh.ids[source], packet, mesh[0].now)
    mesh[0].node.commit()
    assert mesh[0].replies(mesh[0].me) == []
    silent.clear()
    mesh.advance(0.5)
    assert mesh[0].replies(mesh[0].me) == [job.id]
    assert set(hosts_of(mesh, job.id, ips)) == {A, B, C}


def test_a_host_whose_copy_is_confirmed_gets_no_second_one() -> None:
    mesh = spread(A, B, B, C)
    mesh.lose = lambda source, target, packet: target == 3
    assert ask(mesh, "REPLICATE", 3, timeout=1_000) == ""
    mesh.advance(0.5)
    (job,) = mesh[0].node.store.jobs.values()
    assert len(set(mesh.holders(job.id)) & {1, 2}) == 1


def test_what_a_leaving_node_places_elsewhere_can_be_on_its_own_host() -> None:
    mesh = spread(A, A, B)
    mesh[0].node.set_leaving(True)
    id = mesh.add(0, "REPLICATE", 2)
    assert mesh.holders(id) == [1, 2]
    assert ask(mesh, "REPLICATE", 3).startswith("NOREPL Not enough reachable nodes")


def test_a_leaving_node_chooses_its_partners() -> None:
    mesh = spread(A, B, B, C, C)
    partners = sorted(mesh.ids.index(id) for id in mesh.peers[0].partners())
    mesh[0].node.set_leaving(True)
    assert [mesh.holders(mesh.add(0, "REPLICATE", 2)) for _ in range(10)] == [partners] * 10


def test_where_hosts_are_missing_as_well_memory_is_not_blamed() -> None:
    mesh = spread(A, A)
    mesh[0].node.memory.external_above = 0
    mesh[0].node.queues.create(b"x")
    assert ask(mesh, "REPLICATE", 2).startswith("NOREPL Not enough reachable nodes")
    mesh = spread(A, B)
    mesh[0].node.memory.external_above = 0
    mesh[0].node.queues.create(b"x")
    assert ask(mesh, "REPLICATE", 2).startswith("NOREPL Memory is short")


@pytest.mark.parametrize("options", [(), ("ASYNC",)])
def test_more_copies_than_hosts_are_refused_at_once(options: tuple[str, ...]) -> None:
    mesh = spread(A, A, B)
    assert ask(mesh, "REPLICATE", 3, *options).startswith("NOREPL Not enough reachable nodes")
    assert spread(A, A, A).peers[0].places() == 1
    assert ask(spread(A, A, A), "REPLICATE", 2).startswith("NOREPL")


def test_a_job_has_as_many_copies_as_there_are_hosts_if_nobody_says_how_many() -> None:
    mesh = spread(A, A)
    assert mesh.holders(mesh.add(0)) == [0]
    ips = (A, A, B, B)
    mesh = spread(*ips)
    assert hosts_of(mesh, mesh.add(0), ips) == [A, B]


def test_until_the_own_address_is_known_no_copy_is_placed() -> None:
    assert ask(spread("", A), "REPLICATE", 2).startswith("NOREPL")


def test_a_leaving_node_gives_all_to_the_other_process_of_the_only_host() -> None:
    mesh = spread(A, A)
    mesh[0].node.set_leaving(True)
    assert mesh.holders(mesh.add(0)) == [1]


@pytest.mark.parametrize("seed", range(1, 7))
def test_a_leaving_node_has_a_job_queued_by_a_holder_that_it_can_tell(seed: int) -> None:
    mesh = Mesh(3, seed=seed, jitter=None)
    mesh[0].node.set_leaving(True)
    mesh.lose = lambda source, target, packet: source == 2
    assert ask(mesh, "REPLICATE", 2) == ""
    mesh.cut(0, 1)  # it has confirmed its copy
    mesh.lose = lambda source, target, packet: False
    mesh.advance(0.5)
    assert [bench.number_queued() for bench in mesh.nodes] == [0, 0, 1]
