"""If consumers take jobs fast, these come from other nodes in large batches."""

import pytest

from disque_trio.protocol import bus
from disque_trio.protocol.settled import read_settled
from tests.support.gifts import given_ids, is_gift
from tests.support.mesh import Mesh


@pytest.fixture
def mesh() -> Mesh:
    return Mesh(3)


def asked(mesh: Mesh, source: int, count: int) -> None:
    """Let the node ``source`` ask node 0 for jobs."""
    packet = mesh[source].node.packets.about_queue(bus.NEEDJOBS, b"q", count)
    mesh[0].node.receive(mesh.ids[source], packet, mesh[0].now)


def given(mesh: Mesh) -> list[int]:
    """Return how many jobs each packet in flight gives."""
    return [len(given_ids(packet)) for _, _, packet in mesh.moving if is_gift(packet)]


@pytest.mark.parametrize("c_nodes", [(), (0,)])
def test_where_jobs_go_fast_many_are_asked_for_but_not_of_a_c_node(c_nodes: tuple[int]) -> None:
    mesh = Mesh(2)
    mesh.c_nodes.update(c_nodes)
    most = 0

    def watch(source: int, target: int, packet: bytes) -> bool:
        nonlocal most
        if bus.packet_type(packet) == bus.NEEDJOBS:
            most = max(most, bus.read_about_queue(packet).aux)
        elif bus.packet_type(packet) == bus.SETTLED:
            most = max(most, *[want.aux for want in read_settled(packet).wants], 0)
        return False

    mesh.lose = watch
    for _ in range(6000):
        mesh.add(0, "REPLICATE", 1)
    taken = 0
    for _ in range(100):
        ids = mesh[1].get_all(count=64)
        taken += len(ids)
        if ids:
            mesh[1]("ACKJOB", *ids)
        mesh.advance(0.005)
    assert most == (100 if c_nodes else 400)
    assert taken > (1000 if c_nodes else 4000)


def test_who_takes_fast_gets_in_one_packet_what_comes_in_a_moment(mesh: Mesh) -> None:
    asked(mesh, 1, 101)
    for _ in range(30):
        mesh[0].add("q", "body", "REPLICATE", 1)
    assert given(mesh) == []
    mesh.advance(0.002)
    assert mesh[1]("QLEN", "q") == 30
    asked(mesh, 1, 101)
    for _ in range(60):
        mesh[0].add("q", "body", "REPLICATE", 1)
    assert given(mesh) == [50]
    mesh.advance(0.002)
    assert mesh[1]("QLEN", "q") == 80
    asked(mesh, 1, 101)  # there are some, but too few for a packet
    assert given(mesh) == []
    mesh.advance(0.002)
    assert mesh[0]("QLEN", "q") == 0


def test_who_takes_fast_gets_half_where_others_take_as_well(mesh: Mesh) -> None:
    for _ in range(301):
        mesh.add(0, "REPLICATE", 1)
    mesh[0].get()
    asked(mesh, 1, 400)
    assert given(mesh) == [150]
    mesh.advance(5.1)
    asked(mesh, 1, 400)
    assert given(mesh) == [150]


def test_who_took_fast_but_asked_no_more_gets_one_job(mesh: Mesh) -> None:
    asked(mesh, 1, 400)
    mesh.advance(0.2)
    for _ in range(60):
        mesh.add(0, "REPLICATE", 1)
    mesh.advance(0.1)
    assert mesh[1]("QLEN", "q") == 1


def test_jobs_do_not_stay_where_nobody_takes_them_any_more(mesh: Mesh) -> None:
    for _ in range(300):
        mesh.add(0, "REPLICATE", 1)
    asked(mesh, 1, 400)
    mesh.settle()
    assert mesh[1]("QLEN", "q") == 300
    waited = 0.0
    waiting = mesh[0].block("q")
    while waiting.blocked:
        mesh.advance(0.1)
        waited += 0.1
    mesh[0].got(waiting)
    for _ in range(299):
        while mesh[0].get() is None:
            mesh.advance(0.1)
            waited += 0.1
    assert waited < 7
