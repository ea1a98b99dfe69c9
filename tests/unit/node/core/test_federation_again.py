"""Jobs still move to their consumers when nodes join, start again, or can be reached again."""

import pytest

from disque_trio.protocol.bus import (
    INCR_DELIVERIES,
    NEEDJOBS,
    QUEUED,
    REQUEUED,
    YOURJOBS,
    packet_type,
)
from disque_trio.protocol.requeued import Requeued
from tests.support.gifts import is_gift
from tests.support.mesh import Mesh


@pytest.fixture
def mesh() -> Mesh:
    return Mesh(3)


def test_clients_that_wait_are_served_once_their_node_joins(mesh: Mesh) -> None:
    mesh.peers[1].size = 1
    waiting = mesh[1].block("q")
    mesh[1].node.cron(mesh[1].now)
    id = mesh.add(0, "REPLICATE", 1)
    mesh.advance(60)
    mesh.peers[1].size = 3
    mesh[1].node.cron(mesh[1].now)
    mesh.settle()
    assert mesh[1].got(waiting) == id


def test_clients_that_wait_are_served_once_the_connection_is_back(mesh: Mesh) -> None:
    id = mesh.add(2, "REPLICATE", 1)
    mesh.cut(1, 2)
    waiting = mesh[1].block("q")
    mesh.advance(60)
    assert waiting.blocked
    mesh.join(1, 2)
    mesh.advance(0.01)
    assert mesh[1].got(waiting) == id


@pytest.mark.parametrize("first", ["a", "b"])
def test_what_a_client_leaves_in_one_queue_because_it_got_a_job_of_another_goes_to_who_asked(
    first: str,
) -> None:
    mesh = Mesh(2)
    mesh[0]("ACKJOB", mesh.add(0, "REPLICATE", 2))  # so both know that the other is no C node
    for queue in ("a", "b"):
        assert mesh[0]("BIND", "t", queue) == b"OK"
    mesh.settle()
    here = mesh[0].block(first, "b" if first == "a" else "a")
    there = [mesh[1].block(queue) for queue in ("a", "b")]
    mesh.settle()
    mesh[0].send(mesh[0].me, "ADDJOB", "@t", "body", 0, "REPLICATE", 2)
    mesh.settle()
    assert not here.blocked
    assert [client.blocked for client in there].count(False) == 1


def test_a_node_that_asked_is_offered_jobs_when_it_is_connected_again() -> None:
    mesh = Mesh(2)
    waiting = mesh[1].block("q")
    mesh.settle()
    mesh.cut(0, 1)
    id = mesh.add(0, "REPLICATE", 1)
    mesh.lose = lambda source, target, packet: packet_type(packet) == NEEDJOBS
    mesh.join(0, 1)
    mesh.advance(0.1)
    assert mesh[1].got(waiting) == id


def test_a_job_that_comes_back_before_its_pause_is_over_does_not_pause_any_more() -> None:
    mesh = Mesh(2)
    id = mesh.add(0, "REPLICATE", 2, "RETRY", 10)
    assert mesh[0].get() == id
    assert mesh[0]("NACK", id, "DELAY", 5000) == 1
    mesh.settle()
    mesh.lose = lambda source, target, packet: True
    assert mesh[1]("ENQUEUE", id) == 1
    mesh.settle()
    mesh.lose = lambda source, target, packet: False
    client = mesh[0].block("q")
    mesh.advance(1)
    assert mesh[0].got(client) == id
    mesh.cut(0, 1)
    mesh.advance(12)
    assert mesh[0].number_queued() == 1
    assert mesh[0].number(id, b"additional-deliveries") == 1


def test_a_node_that_gives_what_is_known_already_is_not_asked_for_more() -> None:
    mesh = Mesh(2)
    id = mesh.add(0, "REPLICATE", 2)
    job = mesh[1].node.store.jobs.get(id)
    assert job is not None
    given = mesh[1].node.packets.jobs(YOURJOBS, [mesh[1].node.bus_codec.encode(job)])
    mesh[0].node.receive(mesh.ids[1], given, mesh[0].now)
    assert mesh[0].queue()[b"import-from"] == []


def test_who_gives_a_job_that_has_ended_hears_so_at_once() -> None:
    mesh = Mesh(3)
    id = mesh.add(0, "REPLICATE", 3)
    job = mesh[0].node.store.jobs.get(id)
    assert job is not None
    given = mesh[0].node.packets.jobs(YOURJOBS, [mesh[0].node.bus_codec.encode(job)])
    mesh.isolate(2)  # so the end of the job is kept in mind
    mesh.lose = lambda source, target, packet: True
    assert mesh[1]("ACKJOB", id) == 1
    mesh.settle()
    assert mesh.states(id) == ["queued", "acked", "active"]
    mesh.lose = lambda source, target, packet: False
    mesh[1].node.receive(mesh.ids[0], given, mesh[1].now)
    mesh.settle()
    assert mesh.states(id) == ["acked", "acked", "active"]


@pytest.mark.parametrize("read", [True, False])
@pytest.mark.parametrize("copies", [1, 3])
def test_a_job_that_a_node_was_given_but_never_read_is_queued_when_that_node_is_back(
    mesh: Mesh, copies: int, read: bool
) -> None:
    waiting = mesh[1].block("q")
    mesh.settle()
    mesh.lose = lambda source, target, packet: (
        not read and (source, target) == (0, 1) and is_gift(packet)
    )
    id = mesh.add(0, "REPLICATE", copies, "RETRY", 600)
    mesh.settle()
    assert waiting.blocked != read
    mesh.cut(0, 1)
    mesh.advance(3)
    mesh.lose = lambda source, target, packet: False
    mesh.join(0, 1)
    mesh.advance(1.5)
    assert mesh[1].got(waiting) == id
    mesh.advance(5)
    assert not any(bench.number_queued() for bench in mesh.nodes)


@pytest.mark.parametrize("back", ["", "ENQUEUE", "NACK"])
def test_what_another_node_gives_while_a_client_has_it_waits_for_its_retry_time(back: str) -> None:
    mesh = Mesh(2)
    having, waiting = mesh[1].block("q"), mesh[1].block("q")
    mesh.settle()
    id = mesh.add(0, "RETRY", 60)
    assert mesh[1].got(having) == id
    mesh.cut(0, 1)
    mesh.peers[0].died(mesh.ids[1])
    mesh.advance(3)
    assert mesh[0].number_queued() == 1
    if back:
        mesh[0]("DEQUEUE", id)
        mesh[0](back, id)
    mesh.join(0, 1)
    mesh.advance(3)
    if not back:
        assert waiting.blocked
        mesh.advance(60)
    assert mesh[1].got(waiting) == id


@pytest.mark.parametrize("how", ["queue", "pattern"])
def test_a_node_that_was_started_anew_learns_at_once_who_waits(mesh: Mesh, how: str) -> None:
    where = ("PATTERN", "FROM", "q*") if how == "pattern" else ("FROM", "q")
    worker = mesh[1].client()
    mesh[1].send(worker, "GETJOB", *where)
    mesh.advance(35)  # until the others are rarely asked
    mesh.cut(0, 1)
    mesh.advance(0.05)
    mesh[0].node.flush()  # it has forgotten all
    mesh.join(0, 1)
    mesh.advance(0.05)
    id = mesh.add(0, "REPLICATE", 1)
    mesh.settle()
    assert mesh[1].replies(worker) == [[[b"q", id, b"body"]]]


@pytest.mark.parametrize("how", ["queue", "pattern"])
def test_who_began_to_wait_before_its_node_was_connected_has_a_job_once_it_is(
    mesh: Mesh, how: str
) -> None:
    where = ("PATTERN", "FROM", "q*") if how == "pattern" else ("FROM", "q")
    id = mesh.add(0, "REPLICATE", 1)
    mesh.isolate(1)
    mesh.advance(0.05)
    worker = mesh[1].client()
    mesh[1].send(worker, "GETJOB", *where)
    mesh.advance(0.05)
    mesh.rejoin(1)
    mesh.advance(0.05)
    assert mesh[1].replies(worker) == [[[b"q", id, b"body"]]]


def test_who_asked_has_a_job_once_the_connection_back_is_there_too(mesh: Mesh) -> None:
    mesh.add(0, "REPLICATE", 1)
    mesh.peers[0].away.add(mesh.ids[1])
    mesh.advance(0.05)
    waiting = mesh[1].block("q")
    mesh.advance(0.05)
    assert waiting.blocked
    mesh.join(0, 1)
    mesh.advance(0.05)
    assert not waiting.blocked


def test_a_node_that_loads_notes_who_wants_jobs(mesh: Mesh) -> None:
    mesh[0].node.set_trouble(True, "")
    worker = mesh[1].block("q")
    mesh.settle()
    mesh[0].node.set_trouble(False, "")
    mesh.advance(0.05)
    id = mesh.add(0, "REPLICATE", 1)
    assert mesh[1].got(worker) == id


def test_late_news_of_other_queues_do_not_keep_a_node_from_asking_where_the_job_is() -> None:
    mesh = Mesh(3)
    ids = [mesh.add(0, "RETRY", 600) for _ in range(10)]
    for sender in (1, 2, 1):  # each had the job in its queue, and gave it away since
        for id in ids:
            packet = mesh[sender].node.packets.about_job(QUEUED, id)
            mesh[0].node.receive(mesh.ids[sender], packet, mesh[0].now)
        mesh.settle()
    assert mesh[0].number_queued() < len(ids)
    mesh.advance(1.5)
    assert mesh[0].number_queued() == len(ids)


def test_what_another_holder_queues_after_the_pause_that_it_told_is_left_to_it() -> None:
    """Although this node was about to ask where the job is when it heard of the pause."""
    mesh = Mesh(2)
    other = mesh[1].node.packets
    ids = [mesh.add(0, "RETRY", 600, "REPLICATE", 2) for _ in range(10)]

    def hears(id: bytes, packet: bytes) -> None:
        mesh[0].node.receive(mesh.ids[1], packet, mesh[0].now)

    for id in ids:
        hears(id, other.about_job(QUEUED, id))
    mesh.moving.clear()
    left = mesh[0].number_queued()
    assert left < len(ids)  # it asks about the others within a second
    for id in ids:
        hears(id, other.fields(REQUEUED, Requeued(id, INCR_DELIVERIES, 700, b"", {}).pack()))
    mesh.moving.clear()
    left = mesh[0].number_queued()
    mesh.advance(0.6)
    for id in ids:
        hears(id, other.about_job(QUEUED, id))
    mesh.advance(3)
    assert mesh[0].number_queued() == left


def test_what_has_ended_leaves_the_request_of_a_waiting_client_open() -> None:
    mesh = Mesh(3)
    mesh.advance(0)
    id = mesh.add(0)
    mesh.cut(0, 1)
    mesh[1]("ACKJOB", id)
    mesh[1].block("q")
    mesh.advance(1)
    job = mesh[0].node.store.jobs.get(id)
    assert job is not None
    given = mesh[0].node.packets.jobs(YOURJOBS, [mesh[0].node.bus_codec.encode(job)])
    mesh.told()
    mesh[1].node.receive(mesh.ids[0], given, mesh[1].now)
    mesh.settle()
    assert (1, "needjobs", 2) in mesh.told("needjobs")


def test_a_job_that_comes_back_is_no_longer_in_the_hands_of_its_first_worker() -> None:
    mesh = Mesh(2)
    id = mesh.add(0, "REPLICATE", 2, "RETRY", 10)
    assert mesh[0].get() == id  # that worker dies
    mesh.cut(0, 1)
    mesh.advance(11)
    assert mesh.states(id) == ["queued", "queued"]
    assert mesh[0].get() == id
    mesh[1]("DEQUEUE", id)
    mesh[1]("ENQUEUE", id)
    mesh.join(0, 1)
    packet = mesh[0].node.packets.about_queue(12, b"q", 5)
    mesh[1].node.receive(mesh.ids[0], packet, mesh[1].now)
    mesh.settle()
    assert mesh[0]("DEQUEUE", id) == 1
    assert b"client" not in mesh[0].fields("SHOW", id, "CLIENT")
