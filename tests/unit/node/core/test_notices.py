"""Copied, acknowledged and deleted jobs are reported together, to nodes that can read that.

Of jobs that two nodes share, here with one that does not know SETTLED."""

import pytest

from disque_trio.node.core.rpc.notices import MOST, MOST_COPIED
from disque_trio.protocol import bus
from tests.support.mesh import Mesh

JOBS = 30


def take(mesh: Mesh, count: int = JOBS) -> list[bytes]:
    """Return jobs that were added on node 0 and taken on node 1."""
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
    """Return two nodes that have told each other about the end of a job before; one is older."""
    mesh = Mesh(2)
    mesh.older.add(0)
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
    mesh.older.add(0)
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
    mesh.lose = lambda source, target, packet: bus.names_many(packet)  # as a C node ignores it
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


def test_acknowledgements_are_told_although_the_turn_is_not_on_disk(mesh: Mesh) -> None:
    ids = take(mesh)
    bench = mesh[1]
    bench.send(bench.me, "ACKJOB", *ids)
    bench.node.roll_back(b"-MISCONF\r\n")
    bench.node.commit()
    assert mesh.told() == [(1, "setack", 0)]
    mesh.advance(3)
    assert held(mesh) == [0, 0]


COPIES = [(0, "repljob", 1), (0, "repljob", 2), (1, "gotjob", 0), (2, "gotjob", 0)]


def add_together(mesh: Mesh, body: bytes = b"body", *options: str | int) -> list[bytes]:
    """Return jobs that were added on node 0 in one turn, with their copies."""
    bench = mesh[0]
    for _ in range(JOBS):
        bench.send(bench.me, "ADDJOB", "q", body, 0, *options)
    mesh.settle()
    ids = bench.replies(bench.me)
    assert all(isinstance(id, (bytes, str)) for id in ids)
    return [id.encode() if isinstance(id, str) else bytes(id) for id in ids]  # type: ignore[call-overload]


@pytest.fixture
def three() -> Mesh:
    """Return three nodes that have told each other about the end of a job before."""
    mesh = Mesh(3)
    mesh[0]("ACKJOB", mesh.add(0))
    mesh.settle()
    mesh.told()
    return mesh


def test_copies_of_jobs_that_are_added_together_travel_together(three: Mesh) -> None:
    ids = add_together(three)
    assert three.told() == COPIES
    assert held(three) == [JOBS] * 3
    assert {three.holders(id)[-1] for id in ids} == {2}
    for bench in three.nodes:
        assert bench.node.memory.used == bench.counted_memory()
        assert bench.node.bad_packets == 0


def test_a_node_of_which_nothing_is_known_gets_a_packet_for_each_copy() -> None:
    mesh = Mesh(3)
    add_together(mesh)
    assert mesh.told() == sorted(COPIES * JOBS)


def test_c_nodes_get_a_packet_for_each_copy_and_others_one_for_all() -> None:
    mesh = Mesh(3)
    mesh.c_nodes.add(2)
    mesh[0]("ACKJOB", mesh.add(0))
    mesh.settle()
    mesh.told()
    add_together(mesh)
    to_c = [(0, "repljob", 2), (2, "gotjob", 0)]
    assert mesh.told() == sorted([(0, "repljob", 1), (1, "gotjob", 0), *(to_c * JOBS)])
    assert held(mesh) == [JOBS] * 3


def test_a_node_that_does_not_confirm_gets_a_packet_for_each_copy(three: Mesh) -> None:
    three.lose = lambda source, target, packet: (
        bus.packet_type(packet) == bus.REPLJOB and len(bus.read_jobs(packet).jobs) > 1
    )
    bench = three[0]
    for _ in range(JOBS):
        bench.send(bench.me, "ADDJOB", "q", "body", 0)
    three.advance(1)
    assert len(bench.replies(bench.me)) == JOBS
    assert held(three) == [JOBS] * 3


def test_a_node_that_does_not_read_the_confirmations_gets_a_packet_for_each(three: Mesh) -> None:
    add_together(three)
    three.lose = lambda source, target, packet: (
        bus.packet_type(packet) == bus.GOTJOB and bus.names_many(packet)
    )
    bench = three[0]
    for _ in range(JOBS):
        bench.send(bench.me, "ADDJOB", "q", "body", 0)
    three.advance(1)
    assert len(bench.replies(bench.me)) == JOBS


def test_a_packet_with_several_copies_is_not_large(three: Mesh) -> None:
    sizes: list[tuple[int, int]] = []

    def look(source: int, target: int, packet: bytes) -> bool:
        if bus.packet_type(packet) == bus.REPLJOB:
            sizes.append((len(packet), len(bus.read_jobs(packet).jobs)))
        return False

    three.lose = look
    add_together(three, b"x" * (MOST_COPIED // 5))
    assert {jobs for _, jobs in sizes} > {4}
    assert max(size for size, _ in sizes) <= MOST_COPIED + bus.HEADER_SIZE + 8
    sizes.clear()
    add_together(three, b"x" * MOST_COPIED)
    assert {jobs for _, jobs in sizes} == {1}
    assert held(three) == [2 * JOBS] * 3


def test_a_job_that_is_deleted_before_its_copies_have_left_is_deleted_everywhere(
    three: Mesh,
) -> None:
    bench = three[0]
    bench.send(bench.me, "ADDJOB", "q", "body", 0, "ASYNC")
    (job,) = bench.node.store.jobs.values()
    bench.send(bench.me, "FASTACK", job.id)
    three.settle()
    assert held(three) == [0, 0, 0]


def test_copies_of_a_turn_that_is_not_on_disk_do_not_leave(three: Mesh) -> None:
    bench = three[0]
    bench.send(bench.me, "ADDJOB", "q", "body", 0, "ASYNC")
    bench.node.roll_back(b"-MISCONF\r\n")
    bench.node.commit()
    assert three.told() == []


def test_copies_before_a_malformed_one_are_taken(three: Mesh) -> None:
    job = three[0].node.store.make_job(b"q", b"b", 3, 0, 5, 100)
    data = three[0].node.bus_codec.encode(job)
    for jobs in ([data, data[:4] + b"X" + data[5:]], []):
        packet = three[0].node.packets.jobs(bus.REPLJOB, jobs)
        three[1].node.receive(three.ids[0], packet, three[1].now)
    assert three[1].node.bad_packets == 2
    assert three[1].held(job.id)
