"""Acknowledged jobs are told of together, to nodes that can read it."""

import pytest

from disque_trio.node.core.notices import MOST
from disque_trio.protocol import bus
from tests.support.mesh import Mesh

JOBS = 30


def take(mesh: Mesh, count: int = JOBS) -> list[bytes]:
    """Jobs that were added on node 0, and taken on node 1."""
    added = {mesh.add(0, "REPLICATE", 1) for _ in range(count)}
    taken: list[bytes] = []
    while len(taken) < count:
        packet = mesh[1].node.packets.about_queue(bus.NEEDJOBS, b"q", 100)
        mesh[0].node.receive(mesh.ids[1], packet, mesh[0].now)
        mesh.settle()
        while (id := mesh[1].get()) is not None:
            taken.append(id)
    assert set(taken) == added
    mesh.settle()
    mesh.told()
    return taken


def held(mesh: Mesh) -> list[int]:
    return [bench.node.store.jobs.count for bench in mesh.nodes]


@pytest.fixture
def mesh() -> Mesh:
    """Two nodes that have told each other of an end before."""
    mesh = Mesh(2)
    (id,) = take(mesh, 1)
    mesh[1]("ACKJOB", id)
    mesh.settle()
    return mesh


def test_jobs_that_two_nodes_share_end_with_one_packet_to_and_one_fro(mesh: Mesh) -> None:
    assert mesh[1]("ACKJOB", *take(mesh)) == JOBS
    mesh.settle()
    assert mesh.told() == [(0, "gotack", 1), (1, "setack", 0)]
    assert held(mesh) == [0, 0]
    for bench in mesh.nodes:
        assert bench.node.memory.used == bench.counted_memory()
        assert bench.node.bad_packets == 0


def test_a_node_of_which_nothing_is_known_gets_a_packet_for_each_job() -> None:
    mesh = Mesh(2)
    assert mesh[1]("ACKJOB", *take(mesh)) == JOBS
    mesh.settle()
    assert mesh.told() == [(0, "gotack", 1)] * JOBS + [(1, "setack", 0)] * JOBS
    assert held(mesh) == [0, 0]


@pytest.mark.parametrize("c_node", [0, 1])
def test_a_c_node_always_gets_a_packet_for_each_job(c_node: int) -> None:
    mesh = Mesh(2)
    mesh.c_nodes.add(c_node)
    for _ in range(3):
        mesh[1]("ACKJOB", *take(mesh))
        mesh.settle()
        each = [(0, "gotack", 1), (1, "deljob", 0), (1, "setack", 0)]
        assert mesh.told() == sorted(each * JOBS)
        assert held(mesh) == [0, 0]


def test_a_node_that_does_not_answer_gets_a_packet_for_each_job(mesh: Mesh) -> None:
    ids = take(mesh)
    mesh.lose = lambda source, target, packet: bus.names_many(packet)  # as a C node passes over it
    mesh[1]("ACKJOB", *ids)
    mesh.settle()
    assert mesh.states(ids[0]) == ["active", "acked"]
    mesh.advance(2)
    assert held(mesh) == [0, 0]


@pytest.mark.parametrize("type", [bus.SETACK, bus.GOTACK])
def test_what_is_lost_is_told_again(mesh: Mesh, type: int) -> None:
    ids = take(mesh)
    mesh.lose = lambda source, target, packet: bus.packet_type(packet) == type
    mesh[1]("ACKJOB", *ids)
    mesh.settle()
    assert held(mesh)[1] == JOBS
    mesh.lose = lambda source, target, packet: False
    mesh.advance(3)
    assert held(mesh) == [0, 0]
    mesh.advance(1000)
    assert mesh[0].get() is None
    assert mesh[1].get() is None


def test_jobs_of_three_nodes_end_when_all_have_confirmed() -> None:
    mesh = Mesh(3)
    for _ in range(2):
        ids = [mesh.add(0) for _ in range(JOBS)]
        mesh.told()
        mesh[0]("ACKJOB", *ids)
        mesh.settle()
        assert held(mesh) == [0, 0, 0]
    there_and_back = [(0, "setack", 1), (0, "setack", 2), (1, "gotack", 0), (2, "gotack", 0)]
    assert mesh.told() == sorted([*there_and_back, (0, "deljob", 1), (0, "deljob", 2)])


def test_no_packet_names_more_than_some(mesh: Mesh) -> None:
    ids = take(mesh, MOST + 1)
    mesh[1]("ACKJOB", *ids[: MOST // 2])
    sent: list[int] = []
    mesh.lose = lambda source, target, packet: bool(sent.append(len(bus.job_ids(packet))))
    mesh[1]("ACKJOB", *ids)
    mesh.settle()
    assert max(sent) <= MOST
    assert held(mesh) == [0, 0]


def test_nothing_is_told_of_a_turn_that_is_not_on_disk(mesh: Mesh) -> None:
    ids = take(mesh)
    bench = mesh[1]
    bench.send(bench.me, "ACKJOB", *ids)
    bench.node.roll_back(b"-MISCONF\r\n")
    bench.node.commit()
    assert mesh.told() == []
    mesh.advance(3)
    assert held(mesh) == [0, 0]
