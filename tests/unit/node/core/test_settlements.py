"""Of a job that two nodes hold, the one whose client acknowledges it forgets it at once."""

from collections.abc import Callable

import pytest

from disque_trio.eventlog import schema
from disque_trio.node.core.jobs.job import Job
from disque_trio.node.core.rpc import settlements
from disque_trio.node.core.rpc.settlements import CONFIRM_AFTER, PATIENCE
from disque_trio.protocol.bus import NEEDJOBS, SETACK, SETTLED, packet_type
from disque_trio.protocol.settled import read_settled
from tests.support.mesh import Mesh

JOBS = 30
CONFIRMED = CONFIRM_AFTER / 1000 + 0.05  # s
LATE = PATIENCE / 1000 + 0.05


@pytest.fixture
def mesh() -> Mesh:
    return Mesh(2)


def take(mesh: Mesh, count: int = JOBS) -> list[bytes]:
    """Return jobs that were added on node 0 and taken on node 1."""
    for _ in range(count):
        mesh.add(0, "REPLICATE", 1)
    ids: list[bytes] = []
    while len(ids) < count:
        packet = mesh[1].node.packets.about_queue(NEEDJOBS, b"q", 100)
        mesh[0].node.receive(mesh.ids[1], packet, mesh[0].now)
        mesh.settle()
        ids += mesh[1].get_all(count=count)
    mesh.settle()
    mesh.told()
    return ids


def job(mesh: Mesh, id: bytes) -> Job:
    """The job ``id`` at node 0."""
    found = mesh[0].node.store.jobs.get(id)
    assert found is not None
    return found


def held(mesh: Mesh) -> list[int]:
    return [bench.node.store.jobs.count for bench in mesh.nodes]


def losing(type: int, source: int) -> Callable[[int, int, bytes], bool]:
    """Lose what the node ``source`` sends of this type."""
    return lambda origin, _, packet: origin == source and packet_type(packet) == type


def test_the_jobs_of_a_turn_end_with_one_packet_and_a_number_that_confirms_it(mesh: Mesh) -> None:
    assert mesh[1]("ACKJOB", *take(mesh)) == JOBS
    assert held(mesh) == [JOBS, 0]
    mesh.settle()
    assert held(mesh) == [0, 0]
    assert mesh.told() == [(1, "settled", 0)]
    mesh.advance(CONFIRMED)
    assert mesh.told() == [(0, "settled", 1)]
    mesh.advance(100)
    assert mesh.told("settled", "setack", "gotack") == []
    for bench in mesh.nodes:
        assert bench.node.memory.used == bench.counted_memory()
        assert bench.node.bad_packets == 0


def test_the_node_that_made_it_may_be_the_one_whose_client_ends_it(mesh: Mesh) -> None:
    ids = [mesh.add(0, "REPLICATE", 2) for _ in range(3)]
    mesh.told()
    assert mesh[0]("ACKJOB", *ids, ids[0]) == 3
    mesh.settle()
    assert mesh.told() == [(0, "settled", 1)]
    assert held(mesh) == [0, 0]


@pytest.mark.parametrize("source", [0, 1])
def test_what_is_not_confirmed_is_told_in_another_way(mesh: Mesh, source: int) -> None:
    ids = take(mesh)
    mesh.lose = losing(SETTLED, source)
    mesh[1]("ACKJOB", *ids)
    mesh.settle()
    assert held(mesh) == [JOBS * source, 0]
    mesh.advance(LATE)
    assert held(mesh) == [0, 0]
    assert (1, "setack", 0) in mesh.told()
    mesh.advance(1000)
    assert [bench.get() for bench in mesh.nodes] == [None, None]


def test_a_node_that_is_back_is_told_again_at_once(mesh: Mesh) -> None:
    ids = take(mesh)
    mesh[1].send(mesh[1].me, "ACKJOB", *ids)
    mesh[1].node.commit()
    mesh.cut(0, 1)
    mesh.settle()
    mesh.join(0, 1)
    mesh.advance(0.1)
    assert held(mesh) == [0, 0]


def test_a_node_that_is_away_is_told_later_and_the_job_kept_for_that(mesh: Mesh) -> None:
    ids = take(mesh)
    mesh.cut(0, 1)
    mesh[1]("ACKJOB", *ids)
    assert mesh.states(ids[0]) == ["active", "acked"]
    mesh.join(0, 1)
    mesh.advance(2)
    assert held(mesh) == [0, 0]


def test_one_of_several_packets_may_get_lost(mesh: Mesh) -> None:
    ids = take(mesh, 4)
    for id in ids:
        mesh.lose = losing(SETTLED, 1 if id == ids[1] else 2)
        mesh[1]("ACKJOB", id)
        mesh.settle()
    assert held(mesh) == [1, 0]
    mesh.advance(CONFIRMED)
    mesh.told()
    mesh.advance(LATE)
    assert held(mesh) == [0, 0]
    # Of those before the lost one, nobody knows whether they were carried out.
    assert mesh.told("setack") == [(1, "setack", 0)] * 2


@pytest.mark.parametrize("more", [("RESULT", "done"), ()])
def test_a_job_with_a_trailer_ends_as_before(mesh: Mesh, more: tuple[str, ...]) -> None:
    id = mesh.add(0, "REPLICATE", 2, "HEADERS", 1, "a", "b")
    mesh.told()
    mesh[1]("ACKJOB", id, *more)
    mesh.settle()
    assert (1, "endjob" if more else "setack", 0) in mesh.told()
    assert held(mesh) == [0, 0]


def test_a_job_that_a_third_node_holds_ends_there_too() -> None:
    mesh = Mesh(3)
    id = mesh.add(0, "REPLICATE", 1)
    for taker in (1, 2):
        waiting = mesh[taker].block("q")
        mesh.settle()
        mesh[taker].got(waiting)
        if taker == 1:
            mesh[0].node.requeue.enqueue(job(mesh, id), False, schema.BY_RETRY)
    assert mesh.holders(id) == [0, 1, 2]
    mesh[1]("ACKJOB", id)
    mesh.advance(3)
    assert mesh.holders(id) == []


def test_an_older_node_and_a_node_that_logs_events_tell_each_job(mesh: Mesh) -> None:
    ids = take(mesh, 2)
    mesh[1].node.notes.eventing = True
    mesh[1]("ACKJOB", ids[0])
    mesh[1].node.notes.eventing = False
    mesh.older.add(0)
    mesh[1]("ACKJOB", ids[1])
    mesh.settle()
    assert mesh.told("setack", "settled") == [(1, "setack", 0)] * 2


def test_a_node_that_cannot_confirm_does_not(mesh: Mesh) -> None:
    ids = take(mesh)
    mesh[0].node.set_trouble(False, "full")
    mesh[1]("ACKJOB", *ids)
    mesh.settle()
    assert mesh.states(ids[0]) == ["active", ""]
    mesh.advance(LATE)
    assert mesh.states(ids[0]) == ["acked", "acked"]
    mesh[0].node.set_trouble(False, "")
    mesh.advance(4)
    assert held(mesh) == [0, 0]


def test_the_jobs_of_a_turn_that_is_not_on_disk_are_kept(mesh: Mesh) -> None:
    ids = take(mesh)
    bench = mesh[1]
    bench.send(bench.me, "ACKJOB", *ids)
    bench.node.roll_back(b"-MISCONF\r\n")
    bench.node.commit()
    assert mesh.told() == [(1, "setack", 0)]
    assert bench.replies(bench.me) == [JOBS]
    assert mesh.states(ids[0]) == ["active", "acked"]
    mesh.advance(3)
    assert held(mesh) == [0, 0]


def test_a_turn_that_is_not_on_disk_confirms_nothing(mesh: Mesh) -> None:
    ids = take(mesh)
    mesh[1]("ACKJOB", *ids)
    (packet,) = [packet for _, _, packet in mesh.moving]
    mesh.moving.clear()
    mesh[0].node.receive(mesh.ids[1], packet, mesh[0].now)
    mesh[0].node.roll_back(b"-MISCONF\r\n")
    mesh.advance(LATE)
    assert (1, "setack", 0) in mesh.told()
    assert held(mesh) == [0, 0]


def test_no_packet_names_more_than_some(mesh: Mesh, monkeypatch: pytest.MonkeyPatch) -> None:
    if not settlements.__file__.endswith(".py"):
        pytest.skip("compiled code has its own copy of the number")
    monkeypatch.setattr(settlements, "MOST", 4)
    ids = take(mesh, 9)
    mesh[1]("ACKJOB", *ids)
    sent = [len(read_settled(packet).ids) for _, _, packet in mesh.moving]
    assert sent == [4, 4, 1]
    mesh.settle()
    assert held(mesh) == [0, 0]
    mesh.advance(LATE)
    assert mesh.told("setack") == []


def test_flushed_jobs_are_not_told_again(mesh: Mesh) -> None:
    ids = take(mesh)
    mesh.lose = losing(SETTLED, 1)
    mesh[1]("ACKJOB", *ids)
    mesh.settle()
    mesh[1].node.flush()
    mesh.told()
    mesh.advance(LATE)
    assert mesh.told("setack") == []


def test_a_late_copy_does_not_bring_it_back(mesh: Mesh) -> None:
    id = mesh.add(0, "REPLICATE", 1)
    packet = mesh[0].node.packets.jobs(13, [mesh[0].node.bus_codec.encode(job(mesh, id))])
    waiting = mesh[1].block("q")
    mesh.settle()
    mesh[1].got(waiting)
    mesh[1]("ACKJOB", id)
    mesh[1].node.receive(mesh.ids[0], packet, mesh[1].now)
    assert mesh[1].get() is None
    assert SETACK in [packet_type(packet) for _, _, packet in mesh.moving]
