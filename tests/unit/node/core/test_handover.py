"""A node that leaves gives everything away, so that it can be stopped and forgotten."""

import pytest

from disque_trio.node.core.copies.handover import AGAIN
from disque_trio.protocol import bus
from disque_trio.protocol.bus import packet_type
from tests.support.mesh import Mesh
from tests.support.paged_mesh import PagedMesh

LEAVES = 0  # the node that does, in all tests


@pytest.fixture
def mesh() -> Mesh:
    return Mesh(3)


def leave(mesh: Mesh, *indexes: int) -> None:
    """Have nodes leave; the others know that."""
    for index in indexes:
        assert mesh[index]("CLUSTER", "LEAVING", "yes") == b"OK"
    for peers in mesh.peers:
        gone = {mesh.ids[index] for index in indexes}
        peers.reachable = [id for id in peers.reachable if id not in gone]


def left(mesh: Mesh, index: int = LEAVES) -> int:
    reply = mesh[index]("CLUSTER", "HANDOVER")
    assert isinstance(reply, int)
    return reply


def hand_over(mesh: Mesh, *indexes: int, seconds: float = 5) -> list[int]:
    for index in indexes or (LEAVES,):
        left(mesh, index)
    mesh.advance(seconds)
    return [left(mesh, index) for index in indexes or (LEAVES,)]


def gone(mesh: Mesh, *indexes: int) -> None:
    """Stop nodes, and have the others forget them."""
    for index in indexes:
        mesh.isolate(index)
        for peers in mesh.peers:
            peers.reachable = [id for id in peers.reachable if id != mesh.ids[index]]


def taken(mesh: Mesh, index: int) -> list[bytes]:
    """All jobs that a worker of a node gets, which acknowledges them."""
    bench = mesh[index]
    found = []
    worker = bench.client()
    for _ in range(1_000):
        bench.send(worker, "GETJOB", "TIMEOUT", 2_000, "FROM", "q")
        mesh.advance(0.2)
        replies = bench.replies(worker)
        if not replies:
            mesh.advance(2)
            replies = bench.replies(worker)
        if replies == [None]:
            return found
        ((_, id, _),) = replies[0]
        found.append(id)
        bench.send(worker, "ACKJOB", id)
        mesh.settle()
        bench.replies(worker)
    raise AssertionError("it never ends")


def test_only_a_node_that_leaves_hands_over(mesh: Mesh) -> None:
    assert "LEAVING" in str(mesh[LEAVES]("CLUSTER", "HANDOVER"))
    assert not mesh[LEAVES].node.handover.active


@pytest.mark.parametrize("copies", [1, 2, 3])
def test_queued_jobs_are_at_the_others_and_each_is_delivered_once(mesh: Mesh, copies: int) -> None:
    ids = {mesh.add(LEAVES, "REPLICATE", copies, "RETRY", 600) for _ in range(50)}
    leave(mesh, LEAVES)
    assert left(mesh) == 50
    assert hand_over(mesh) == [0]
    gone(mesh, LEAVES)
    found = taken(mesh, 1) + taken(mesh, 2)
    assert sorted(found) == sorted(ids)


def test_as_many_copies_as_were_asked_for_stay(mesh: Mesh) -> None:
    id = mesh.add(LEAVES, "REPLICATE", 2, "RETRY", 600)
    leave(mesh, LEAVES)
    assert hand_over(mesh) == [0]
    assert mesh.holders(id) == [1, 2]


def test_jobs_that_are_delivered_at_most_once_are_at_one_other_node(mesh: Mesh) -> None:
    queued = mesh.add(LEAVES, "REPLICATE", 1, "RETRY", 0)
    delayed = mesh.add(LEAVES, "REPLICATE", 1, "RETRY", 0, "DELAY", 100)
    leave(mesh, LEAVES)
    assert hand_over(mesh) == [0]
    for id in (queued, delayed):
        (holder,) = mesh.holders(id)
        assert holder != LEAVES
    gone(mesh, LEAVES)
    assert taken(mesh, 1) == [queued]
    mesh.advance(100)
    assert taken(mesh, 1) == [delayed]


@pytest.mark.parametrize("copies", [1, 3])
def test_delayed_jobs_come_when_they_would_have_come(mesh: Mesh, copies: int) -> None:
    id = mesh.add(LEAVES, "REPLICATE", copies, "RETRY", 500, "DELAY", 300)
    mesh.advance(200)
    leave(mesh, LEAVES)
    assert hand_over(mesh) == [0]
    gone(mesh, LEAVES)
    assert taken(mesh, 1) == []
    mesh.advance(100)
    assert taken(mesh, 1) == [id]
    mesh.advance(1_000)
    assert taken(mesh, 1) + taken(mesh, 2) == []


@pytest.mark.parametrize("copies", [1, 3])
def test_jobs_that_were_handed_back_keep_their_pause(mesh: Mesh, copies: int) -> None:
    id = mesh.add(LEAVES, "REPLICATE", copies, "RETRY", 5_000)
    assert mesh[LEAVES].get() == id
    mesh[LEAVES]("NACK", id, "DELAY", 100)
    mesh.settle()
    leave(mesh, LEAVES)
    assert hand_over(mesh) == [0]
    gone(mesh, LEAVES)
    assert taken(mesh, 1) == []
    mesh.advance(110)
    assert taken(mesh, 1) == [id]


@pytest.mark.parametrize("retry", [0, 500])
@pytest.mark.parametrize("delay", [0, 300])
def test_jobs_are_handed_on_by_one_that_leaves_next(mesh: Mesh, retry: int, delay: int) -> None:
    id = mesh.add(LEAVES, "REPLICATE", 1, "RETRY", retry, "DELAY", delay)
    leave(mesh, LEAVES)
    mesh.peers[LEAVES].reachable = [mesh.ids[1]]
    assert hand_over(mesh) == [0]
    gone(mesh, LEAVES)
    leave(mesh, 1)
    assert hand_over(mesh, 1) == [0]
    gone(mesh, 1)
    mesh.advance(max(delay - 20, 0))
    assert (taken(mesh, 2) == [id]) is not bool(delay)
    if delay:
        mesh.advance(20)
        assert taken(mesh, 2) == [id]


def test_a_job_that_a_client_has_is_copied_and_can_be_acknowledged_here(mesh: Mesh) -> None:
    id = mesh.add(LEAVES, "REPLICATE", 1, "RETRY", 600)
    assert mesh[LEAVES].get() == id
    leave(mesh, LEAVES)
    assert hand_over(mesh) == [0]
    assert LEAVES in mesh.holders(id)
    assert len(mesh.holders(id)) == 2
    assert mesh[LEAVES]("ACKJOB", id) == 1
    mesh.advance(5)
    assert mesh.holders(id) == []
    assert left(mesh) == 0


def test_a_job_that_a_client_has_comes_back_elsewhere_if_it_is_not_acknowledged(mesh: Mesh) -> None:
    id = mesh.add(LEAVES, "REPLICATE", 1, "RETRY", 60)
    assert mesh[LEAVES].get() == id
    leave(mesh, LEAVES)
    assert hand_over(mesh) == [0]
    gone(mesh, LEAVES)
    mesh.advance(70)
    assert taken(mesh, 1) + taken(mesh, 2) == [id]


def test_what_a_client_hands_back_meanwhile_is_handed_over_too(mesh: Mesh) -> None:
    id = mesh.add(LEAVES, "REPLICATE", 1, "RETRY", 600)
    assert mesh[LEAVES].get() == id
    leave(mesh, LEAVES)
    assert hand_over(mesh) == [0]
    mesh[LEAVES]("ENQUEUE", id)
    assert left(mesh) == 1
    assert hand_over(mesh) == [0]
    gone(mesh, LEAVES)
    assert taken(mesh, 1) + taken(mesh, 2) == [id]


def test_two_nodes_leave_at_once(mesh: Mesh) -> None:
    ids = [mesh.add(index % 2, "REPLICATE", 2, "RETRY", 600) for index in range(20)]
    leave(mesh, 0, 1)
    assert hand_over(mesh, 0, 1) == [0, 0]
    gone(mesh, 0, 1)
    assert sorted(taken(mesh, 2)) == sorted(ids)


def test_what_a_node_confirmed_that_leaves_then_is_copied_again(mesh: Mesh) -> None:
    id = mesh.add(LEAVES, "REPLICATE", 1, "RETRY", 600)
    assert mesh[LEAVES].get() == id
    leave(mesh, LEAVES)
    assert hand_over(mesh) == [0]
    (other,) = set(mesh.holders(id)) - {LEAVES}
    leave(mesh, other)
    mesh.advance(5)
    assert left(mesh) == 0
    assert mesh.holders(id) == [0, 1, 2]


def test_lost_packets_are_sent_again(mesh: Mesh) -> None:
    ids = [mesh.add(LEAVES, "REPLICATE", 1, "RETRY", 600, "DELAY", 600) for _ in range(10)]
    leave(mesh, LEAVES)
    mesh.lose = lambda source, target, packet: packet_type(packet) in (bus.REPLJOB, bus.GOTJOB)
    assert hand_over(mesh) == [10]
    mesh.lose = lambda source, target, packet: False
    mesh.advance(2 * AGAIN / 1000)
    assert left(mesh) == 0
    assert all(mesh.holders(id) for id in ids)


def test_without_others_nothing_is_given_away(mesh: Mesh) -> None:
    id = mesh.add(LEAVES, "REPLICATE", 1, "RETRY", 600)
    leave(mesh, 0, 1, 2)
    assert hand_over(mesh) == [1]
    assert mesh.holders(id) == [LEAVES]


def test_a_node_that_stays_after_all_keeps_the_rest(mesh: Mesh) -> None:
    id = mesh.add(LEAVES, "REPLICATE", 1, "RETRY", 600, "DELAY", 600)
    before = mesh[LEAVES].node.memory.used
    leave(mesh, LEAVES)
    mesh.lose = lambda source, target, packet: True
    assert hand_over(mesh) == [1]
    mesh[LEAVES]("CLUSTER", "LEAVING", "no")
    assert mesh[LEAVES].node.memory.used == before
    mesh.lose = lambda source, target, packet: False
    mesh.advance(10)
    assert mesh.holders(id) == [LEAVES]


def test_acknowledgements_elsewhere_end_jobs_that_were_handed_over(mesh: Mesh) -> None:
    ids = [mesh.add(LEAVES, "REPLICATE", 3, "RETRY", 600) for _ in range(10)]
    leave(mesh, LEAVES)
    assert hand_over(mesh) == [0]
    assert sorted(taken(mesh, 1)) == sorted(ids)
    mesh.advance(5)
    assert [mesh.holders(id) for id in ids] == [[]] * 10
    assert mesh[1].node.store.jobs.count == mesh[2].node.store.jobs.count == 0


def test_jobs_on_disk_are_handed_over() -> None:
    mesh = PagedMesh(3)
    ids = [mesh.add(LEAVES, "REPLICATE", 2, "RETRY", 600) for _ in range(60)]
    ids += [mesh.add(LEAVES, "REPLICATE", 1, "RETRY", 600, "DELAY", 900) for _ in range(60)]
    ids += [mesh.add(1, "REPLICATE", 2, "RETRY", 600) for _ in range(60)]
    mesh.send_to_disk(LEAVES)
    assert mesh[LEAVES].node.paging.pages.jobs > 0
    leave(mesh, LEAVES)
    left(mesh)
    for _ in range(60):
        mesh.advance(0.5)
    assert left(mesh) == 0
    held = [
        [bench.node.store.jobs.get(id) is not None or bench.node.paging.knows(id) for id in ids]
        for bench in mesh.nodes
    ]
    assert held[LEAVES] == [False] * len(ids)
    copies = [sum(each) for each in zip(*held, strict=True)]
    assert copies == [2] * 60 + [1] * 60 + [2] * 60
