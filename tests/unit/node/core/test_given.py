"""Jobs that nodes give to each other in packets of their own, as they come."""

import pytest

from disque_trio.node.core.queues.need_jobs import FRESH
from disque_trio.protocol import given
from disque_trio.protocol.bus import (
    CREDIT,
    GIVEN,
    HEADER_SIZE,
    SETTLED,
    YOURJOBS,
    QueueMessage,
    packet_type,
)
from disque_trio.protocol.settled import NONE, Confirmation, Settled, pack_settled, read_settled
from tests.support.gifts import given_ids, is_gift
from tests.support.mesh import Mesh

LATER = FRESH / 1000 + 0.01  # s


@pytest.fixture
def mesh() -> Mesh:
    return Mesh(2)


def grant(mesh: Mesh, count: int, flags: int = CREDIT) -> None:
    """Let node 1 grant credit to node 0."""
    message = Settled(0, NONE, [], [QueueMessage(b"q", count, flags)])
    packet = mesh[1].node.packets.packet(SETTLED, pack_settled(message))
    mesh[0].node.receive(mesh.ids[1], packet, mesh[0].now)


def gifts(mesh: Mesh) -> list[tuple[int, int]]:
    """The packets in flight that give jobs: their types, and how many they give."""
    packets = [packet for _, _, packet in mesh.moving if is_gift(packet)]
    return [(packet_type(packet), len(given_ids(packet))) for packet in packets]


def fields(mesh: Mesh, index: int, id: bytes) -> dict[bytes, object]:
    """What a node says about the job ``id``, but for what differs by node."""
    shown = mesh[index].show(id)
    differ = {b"state", b"ttl", b"next-requeue-within", b"next-awake-within", b"nodes-delivered"}
    return {name: value for name, value in shown.items() if name not in differ}


def add(mesh: Mesh, count: int) -> list[bytes]:
    return [add_one(mesh, b"body") for _ in range(count)]


def add_one(mesh: Mesh, body: bytes, *options: str | int) -> bytes:
    mesh[0].send(mesh[0].me, "ADDJOB", "q", body, 0, "REPLICATE", 1, *options)
    (id,) = mesh[0].replies(mesh[0].me)
    assert isinstance(id, str | bytes)
    return id if isinstance(id, bytes) else id.encode()


# ---- the packet ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("RETRY", 0),
        ("RETRY", 7, "TTL", 99),
        ("PRIORITY", 5),
        ("HEADERS", 2, "a", "b", "c", "d"),
        ("GROUP", "g", "PRIORITY", 1),
    ],
)
def test_a_job_arrives_as_it_was(mesh: Mesh, options: tuple[str | int, ...]) -> None:
    id = mesh.add(0, "REPLICATE", 1, *options)
    before = fields(mesh, 0, id)
    grant(mesh, 5)
    assert gifts(mesh) == [(GIVEN, 1)]
    mesh.settle()
    assert fields(mesh, 1, id) == before
    assert mesh.holders(id) == ([1] if "RETRY" in options and 0 in options else [0, 1])
    for bench in mesh.nodes:
        assert bench.node.memory.used == bench.counted_memory()
        assert bench.node.bad_packets == 0


def test_jobs_that_differ_are_in_one_packet(mesh: Mesh) -> None:
    options: list[tuple[str | int, ...]] = [
        ("RETRY", 5),
        ("RETRY", 5),
        ("RETRY", 6),
        ("HEADERS", 1, "a", "b"),
        ("TTL", 600),
        ("PRIORITY", 3),
        (),
    ]
    ids = [mesh.add(0, "REPLICATE", 1, *some) for some in options for _ in range(2)]
    before = [fields(mesh, 0, id) for id in ids]
    grant(mesh, 100)
    assert gifts(mesh) == [(GIVEN, len(ids))]
    mesh.settle()
    assert [fields(mesh, 1, id) for id in ids] == before


def test_what_is_too_large_for_it_goes_as_before(mesh: Mesh) -> None:
    small = mesh.add(0, "REPLICATE", 1)
    bodies = [b"x" * (given.LONGEST + 1), b"y" * given.LONGEST]
    large = [add_one(mesh, body, "HEADERS", 1, "a", "b") for body in bodies]
    grant(mesh, 100)
    assert gifts(mesh) == [(GIVEN, 1), (YOURJOBS, 2)]
    mesh.settle()
    assert set(mesh[1].get_all(count=9)) == {small, *large}


def test_a_packet_is_no_longer_than_other_packets(mesh: Mesh) -> None:
    for _ in range(20):
        add_one(mesh, b"x" * given.LONGEST)
    grant(mesh, 100)
    assert gifts(mesh) == [(GIVEN, given.MOST // given.LONGEST)]
    assert len(mesh.moving[-1][2]) <= 1 << 20
    mesh.advance(0.01)
    assert mesh[1]("QLEN", "q") == 20


def test_an_older_node_gets_yourjobs(mesh: Mesh) -> None:
    mesh.older.add(1)
    mesh.add(0, "REPLICATE", 1)
    packet = mesh[1].node.packets.about_queue(12, b"q", 5)
    mesh[0].node.receive(mesh.ids[1], packet, mesh[0].now)
    assert gifts(mesh) == [(YOURJOBS, 1)]


def test_jobs_before_a_malformed_one_are_taken(mesh: Mesh) -> None:
    ids = add(mesh, 3)
    mesh.add(0, "REPLICATE", 1, "HEADERS", 1, "a", "b")
    grant(mesh, 100)
    ((_, _, packet),) = mesh.moving
    mesh.moving.clear()
    third = packet.index(ids[2])
    for broken in (
        packet[: HEADER_SIZE + 4],
        packet[: given.FIRST + 9],
        packet[: given.FIRST + given.HEAD_SIZE + 4],
        packet[: given.FIRST] + packet[packet.index(ids[0]) :],
        packet[: third + 44],
        packet[: third + 54],
        packet[:third] + b"X" + packet[third + 1 :],
        packet[: third + 20] + b"\n" + packet[third + 21 :],
        packet[: third + 20] + b"\0" + packet[third + 21 :],
        packet[: third + 47] + b"\xff" + packet[third + 48 :],
        packet[:-1],
        packet + given.WHOLE,
        packet + given.WHOLE + b"\4\0\0\0junk",
    ):
        mesh[1].node.receive(mesh.ids[0], broken, mesh[1].now)
    assert mesh[1].node.bad_packets == 13
    assert [mesh[1].held(id) for id in ids] == [True, True, True]


def test_it_confirms_what_the_other_node_has_told(mesh: Mesh) -> None:
    (id,) = add(mesh, 1)
    grant(mesh, 10)
    mesh.settle()
    assert mesh[1].get() == id
    mesh[1]("ACKJOB", id)
    mesh.settle()
    add(mesh, 1)
    ((_, _, packet),) = mesh.moving
    assert given.read_row(packet) == Confirmation(1, 1)
    mesh.told()
    mesh.advance(3)
    assert mesh.told("settled", "setack") == []


# ---- credit -------------------------------------------------------------------------------------


def test_jobs_come_as_they_are_added_and_no_more_than_granted(mesh: Mesh) -> None:
    grant(mesh, 5)
    for _ in range(4):
        add(mesh, 2)
        mesh.advance(0.005)
    assert mesh[1]("QLEN", "q") == 5
    assert mesh[0]("QLEN", "q") == 3
    assert mesh.told("settled", "needjobs") == []


def test_the_first_comes_at_once_and_what_follows_in_that_moment_together(mesh: Mesh) -> None:
    grant(mesh, 20)
    add(mesh, 8)
    assert gifts(mesh) == [(GIVEN, 1)]
    mesh.advance(0.002)
    assert mesh.told("given") == [(0, "given", 1)] * 2
    assert mesh[1]("QLEN", "q") == 8


def test_credit_that_is_not_renewed_ends(mesh: Mesh) -> None:
    grant(mesh, 20)
    add(mesh, 1)
    mesh.advance(LATER)
    add(mesh, 5)
    mesh.advance(LATER)
    assert mesh[1]("QLEN", "q") == 2  # one, as for any request that was not fulfilled


def test_credit_of_a_connection_that_broke_is_worth_nothing(mesh: Mesh) -> None:
    grant(mesh, 20)
    mesh.cut(0, 1)
    add(mesh, 5)
    assert mesh[0]("QLEN", "q") == 5


def test_clients_here_come_before_nodes_with_credit(mesh: Mesh) -> None:
    grant(mesh, 20)
    waiting = mesh[0].block("q")
    (id,) = add(mesh, 1)
    assert mesh[0].got(waiting) == id
    add(mesh, 3)
    assert mesh[0]("QLEN", "q") < 3


def test_who_takes_what_streams_in_seldom_asks_again(mesh: Mesh) -> None:
    client = mesh[1].client()
    taken: list[bytes] = []
    wants: list[int] = []
    mesh.lose = lambda source, target, packet: (
        packet_type(packet) == SETTLED and bool(wants.extend([len(read_settled(packet).wants)]))
    )
    mesh[1].send(client, "GETJOB", "COUNT", 4, "FROM", "q")
    for _ in range(400):
        add(mesh, 2)
        mesh.advance(0.001)
        if not client.blocked:
            (ids,) = [mesh[1].ids(reply) for reply in mesh[1].replies(client)]
            taken += ids
            mesh[1]("ACKJOB", *ids)
            mesh[1].send(client, "GETJOB", "COUNT", 4, "FROM", "q")
    assert len(taken) > 780
    assert sum(wants) + len(mesh.told("needjobs")) < 100


@pytest.mark.parametrize("flags", [0, CREDIT])
def test_a_node_that_stops_gets_nothing_for_its_credit(mesh: Mesh, flags: int) -> None:
    grant(mesh, 20, flags)
    mesh[0].node.exports.stops(mesh.ids[1])
    add(mesh, 2)
    mesh.advance(0.01)
    assert mesh[0]("QLEN", "q") == 2


def test_a_queue_with_a_limit_is_asked_for_as_before(mesh: Mesh) -> None:
    mesh[1]("QSET", "q", "ACTIVE", 50)
    mesh.settle()
    waiting = mesh[1].block("q")
    mesh.settle()
    (id,) = add(mesh, 1)
    mesh.settle()
    assert mesh[1].got(waiting) == id
    mesh.told()
    mesh[1].block("q")
    mesh.advance(0.05)
    assert {type for _, type, _ in mesh.told("needjobs", "settled")} <= {"needjobs"}


def test_jobs_stay_once_their_consumer_has_come_to_where_they_are_added() -> None:
    mesh = Mesh(2)

    def pass_job(taken_at: int) -> None:
        id = mesh.add(0, "REPLICATE", 1)
        mesh.advance(0.001)
        bench = mesh[taken_at]
        consumer = bench.client()
        bench.send(consumer, "GETJOB", "FROM", "q")
        while not bench.replies(consumer):
            mesh.advance(0.001)
        bench("ACKJOB", id)
        mesh.advance(0.001)
        bench.disconnect(consumer)

    for _ in range(8):
        pass_job(1)
    for _ in range(4):
        pass_job(0)
    mesh.told()
    for _ in range(8):
        pass_job(0)
    assert mesh.told("given", "yourjobs") == []
