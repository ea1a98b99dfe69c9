"""The cluster bus of a real node, seen by another member played by the test."""

import resource
import socket
from collections.abc import Iterator

import hiredis
import pytest

from disque_trio.protocol.bus import (
    GOTJOB,
    PING,
    PONG,
    REPLJOB,
    packet_type,
)
from disque_trio.protocol.serialjob import JobWriter
from tests.support.fake_peer import HOST, FakePeer, about, add, bus_wire
from tests.support.harness import (
    HANG_SECONDS,
    ClusterFactory,
    LiveNode,
    NodeFactory,
    Wire,
    wait_until,
)
from tests.support.live_helpers import packed


@pytest.fixture
def peer(node: LiveNode) -> Iterator[FakePeer]:
    """The other member of the cluster of ``node``."""
    with FakePeer(node) as it:
        yield it.join()


def serial_job(peer: FakePeer, number: int, body: bytes = b"body") -> bytes:
    """Return a job made by ``peer``."""
    id = b"D-" + peer.id[:8] + b"-" + b"%024d" % number + b"-05a1"
    nodes = peer.id
    return JobWriter().encode(id, 1, 0, 2, 1000, number, 0, 300, 0, 0, b"q", body, nodes)


def silent(wire: Wire) -> bool:
    """Return whether no reply has arrived."""
    wire.sock.setblocking(False)
    try:
        wire.sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    finally:
        wire.sock.settimeout(HANG_SECONDS)
    return False


# ---- links ---------------------------------------------------------------------------------


def test_a_node_that_meets_another_is_met_in_return(node: LiveNode, peer: FakePeer) -> None:
    lines = {words[0]: words for words in node.cluster_nodes()}
    assert lines[peer.id.decode()][1] == f"{HOST}:{peer.port}"
    wait_until(lambda: node.sees(2))


@pytest.mark.pure
def test_a_packet_in_pieces_is_understood(node: LiveNode, peer: FakePeer) -> None:
    packet = peer.packets.gossip(PING, [])
    for at in range(0, len(packet), 7):
        peer.to_node.send(packet[at : at + 7])
    assert packet_type(peer.to_node.read()) == PONG


@pytest.mark.pure
@pytest.mark.parametrize("garbage", [b"PING\r\n" * 5, b"DbuZ" + bytes(200), b"\x16\x03\x01" * 99])
def test_garbage_closes_its_connection_and_nothing_else(
    node: LiveNode, peer: FakePeer, garbage: bytes
) -> None:
    stranger = bus_wire(node)
    stranger.sock.sendall(garbage)
    assert stranger.closed()
    stranger.close()
    peer.ping()
    assert node.ask("PING") == b"PONG"


def test_a_link_that_breaks_is_opened_again(node: LiveNode, peer: FakePeer) -> None:
    peer.from_node.close()
    wire = node.wire()
    add(wire, "q", "body")
    again = peer.accept()
    # What could not be sent before is sent now.
    [id] = peer.copies()
    peer.confirm(id)
    assert wire.read() == id
    again.close()


def test_the_bus_is_counted_apart_from_the_clients(node: LiveNode, peer: FakePeer) -> None:
    before = node.info("stats")
    peer.to_node.send(peer.packets.jobs(REPLJOB, [serial_job(peer, 1, bytes(500_000))]))
    peer.expect(GOTJOB)
    after = node.info("stats")

    def grown(name: str) -> int:
        return int(after[name]) - int(before[name])

    assert 500_000 < grown("total_cluster_input_bytes") < 510_000
    assert 180 < grown("total_cluster_output_bytes") < 10_000
    assert grown("total_net_input_bytes") < 1000
    assert node.info("clients")["cluster_connections"] == "2"
    assert node.info("clients")["connected_clients"] == "1"


# ---- turns ---------------------------------------------------------------------------------


@pytest.mark.pure
def test_all_packets_of_a_turn_leave_in_one_send(node: LiveNode, peer: FakePeer) -> None:
    wire = node.wire()
    before = int(node.info("stats")["total_cluster_sends"])
    wire.raw(packed("ADDJOB", "q", "body", 0, "REPLICATE", 2) * 20)  # not too many for one turn
    ids = peer.copies(20)
    sends = int(node.info("stats")["total_cluster_sends"]) - before
    # One for the jobs; the others are pings sent in the meantime.
    assert sends < 5
    peer.confirm(*ids)
    assert [wire.read() for _ in ids] == ids


def test_replies_come_in_the_order_of_the_requests(node: LiveNode, peer: FakePeer) -> None:
    wire = node.wire()
    for number in range(20):
        add(wire, "q", number)
    ids = peer.copies(20)
    peer.confirm(*reversed(ids[1:]))
    peer.ping()
    assert silent(wire)
    peer.confirm(ids[0])
    assert [wire.read() for _ in ids] == ids


def test_an_addjob_does_not_wait_for_the_copies_of_the_one_before(
    node: LiveNode, peer: FakePeer
) -> None:
    wire = node.wire()
    add(wire, "q", "first")
    [first] = peer.copies()
    add(wire, "q", "second")
    [second] = peer.copies()
    assert first != second
    peer.confirm(first, second)
    assert [wire.read(), wire.read()] == [first, second]


def test_another_request_waits_for_the_copies(node: LiveNode, peer: FakePeer) -> None:
    wire = node.wire()
    add(wire, "q", "body")
    wire.send("QLEN", "q")
    add(wire, "q", "later")
    [id] = peer.copies()
    peer.ping()
    assert silent(wire)
    # Other clients are served meanwhile.
    assert node.ask("QLEN", "q") == 0
    peer.confirm(id)
    assert [wire.read(), wire.read()] == [id, 1]
    [later] = peer.copies()
    peer.confirm(later)
    assert wire.read() == later


def test_commands_behind_a_waiting_addjob_are_all_served_in_order(
    node: LiveNode, peer: FakePeer
) -> None:
    wire = node.wire()
    parts = []
    for number in range(300):
        parts.append(packed("ADDJOB", "q", number, 0, "REPLICATE", 2))
        parts.append(packed("QLEN", "q") if number % 3 == 0 else b"")
    wire.raw(b"".join(parts) + packed("NOSUCH"))
    for number in range(300):
        [id] = peer.copies()
        peer.confirm(id)
        assert wire.read() == id
        if number % 3 == 0:
            assert wire.read() == number + 1
    assert isinstance(wire.read(), hiredis.ReplyError)


def test_reading_is_bounded_for_a_client_that_sends_much_behind_an_addjob(
    node: LiveNode, peer: FakePeer
) -> None:
    wire = node.wire()
    add(wire, "q", "body")
    [id] = peer.copies()
    wire.sock.settimeout(1)
    request = packed("ECHO", "x" * 100_000)
    sent = 0
    try:
        while sent < 1000:
            wire.raw(request)
            sent += 1
    except TimeoutError:
        pass
    assert sent < 1000
    wire.sock.settimeout(HANG_SECONDS)
    peer.confirm(id)
    assert wire.read() == id
    for _ in range(sent):
        assert wire.read() == b"x" * 100_000


def test_a_client_that_closes_its_half_gets_all_its_replies(node: LiveNode, peer: FakePeer) -> None:
    wire = node.wire()
    add(wire, "q", "first")
    add(wire, "q", "second")
    wire.send("QLEN", "q")
    add(wire, "q", "third")
    wire.sock.shutdown(socket.SHUT_WR)
    ids = peer.copies(2)
    peer.confirm(ids[1])
    peer.ping()
    assert silent(wire)
    peer.confirm(ids[0])
    assert [wire.read() for _ in range(3)] == [*ids, 2]
    [third] = peer.copies()
    peer.confirm(third)
    assert wire.read() == third
    assert wire.closed()


def test_a_client_that_sends_much_and_closes_its_half_gets_all_its_replies(
    node: LiveNode, peer: FakePeer
) -> None:
    wire = node.wire()
    add(wire, "q", "body")
    [id] = peer.copies()
    for _ in range(12):
        wire.send("ECHO", "x" * 100_000)  # more than is read ahead
    wire.sock.shutdown(socket.SHUT_WR)
    peer.ping()
    assert silent(wire)
    peer.confirm(id)
    assert wire.read() == id
    for _ in range(12):
        assert wire.read() == b"x" * 100_000
    assert wire.closed()


@pytest.mark.parametrize("requests", [1, 11], ids=["few", "as-many-as-are-read-ahead"])
def test_a_client_that_closes_its_half_while_its_requests_wait_gets_all_its_replies(
    node: LiveNode, peer: FakePeer, requests: int
) -> None:
    wire, other = node.wire(), node.wire()
    other("CLIENT", "PAUSE", 1_000_000_000)
    for _ in range(requests):
        wire.send("ECHO", "x" * 100_000)
    wire.sock.shutdown(socket.SHUT_WR)
    for _ in range(40):
        peer.ping()  # a turn of the node, in which it reads 64 KB at most
    assert other("CLIENT", "UNPAUSE") == b"OK"
    for _ in range(requests):
        assert wire.read() == b"x" * 100_000
    assert wire.closed()


def test_a_half_closed_client_that_would_wait_for_a_job_is_dropped(
    node: LiveNode, peer: FakePeer
) -> None:
    wire = node.wire()
    add(wire, "q", "body")
    wire.send("GETJOB", "FROM", "other")
    wire.sock.shutdown(socket.SHUT_WR)
    [id] = peer.copies()
    peer.ping()
    peer.confirm(id)
    assert wire.read() == id
    assert wire.closed()
    wait_until(lambda: node.info("clients")["connected_clients"] == "1")


def test_a_client_that_disconnects_takes_its_unconfirmed_job_along(
    node: LiveNode, peer: FakePeer
) -> None:
    wire = node.wire()
    add(wire, "q", "body")
    [id] = peer.copies()
    wire.sock.shutdown(socket.SHUT_RDWR)
    wire.close()
    peer.ping()
    assert node.ask("PING") == b"PONG"
    peer.confirm(id)
    peer.ping()
    # Either is right: the job was dropped with its producer, or it was added.
    assert node.ask("QLEN", "q") in (0, 1)
    assert node.info("clients")["blocked_clients"] == "0"


def test_quit_behind_an_addjob_is_answered_last(node: LiveNode, peer: FakePeer) -> None:
    wire = node.wire()
    add(wire, "q", "body")
    wire.send("QUIT")
    [id] = peer.copies()
    peer.confirm(id)
    assert [wire.read(), wire.read()] == [id, b"OK"]
    assert wire.closed()


def test_a_protocol_error_behind_an_addjob_is_reported_after_its_reply(
    node: LiveNode, peer: FakePeer
) -> None:
    wire = node.wire()
    add(wire, "q", "body")
    wire.raw(b"*1\r\nnonsense\r\n")
    [id] = peer.copies()
    peer.ping()
    assert silent(wire)
    peer.confirm(id)
    assert wire.read() == id
    assert isinstance(wire.read(), hiredis.ReplyError)
    assert wire.closed()


def test_a_job_goes_all_its_way_through_three_nodes(cluster: ClusterFactory) -> None:
    first, second, third = nodes = cluster(3)
    id = first.ask("ADDJOB", "q", "body", 0, "REPLICATE", 3)
    assert second.ask("GETJOB", "FROM", "q") == [[b"q", id, b"body"]]
    assert third.ask("ACKJOB", id) == 1
    wait_until(lambda: all(node.info("jobs")["registered_jobs"] == "0" for node in nodes))


# ---- the disk ------------------------------------------------------------------------------


def test_a_copy_that_is_not_on_disk_is_not_confirmed(disque_server: NodeFactory) -> None:
    node = disque_server("--appendonly", "yes", "--appendfsync", "no")
    with FakePeer(node) as peer:
        peer.join()
        pid = node.process.pid
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (1000, -1))
        peer.to_node.send(
            *(peer.packets.jobs(REPLJOB, [serial_job(peer, n, bytes(2000))]) for n in range(3))
        )
        # The membership goes on: a node with a full disk is not dead.
        peer.ping()
        assert GOTJOB not in map(packet_type, peer.from_node.there())
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (-1, -1))
        wait_until(lambda: node.info("persistence")["aof_last_write_status"] == "ok")
        packet = peer.packets.jobs(REPLJOB, [serial_job(peer, 9, b"later")])
        peer.to_node.send(packet)
        [confirmed] = peer.expect(GOTJOB)
        assert about(confirmed).endswith(b"9-05a1")


def test_an_addjob_that_is_not_on_disk_is_not_confirmed(disque_server: NodeFactory) -> None:
    node = disque_server("--appendonly", "yes", "--appendfsync", "no")
    with FakePeer(node) as peer:
        peer.join()
        wire = node.wire()
        add(wire, "q", "x" * 2000)
        [id] = peer.copies()
        resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, (1000, -1))
        peer.confirm(id)
        reply = wire.read()
        assert isinstance(reply, hiredis.ReplyError)
        assert str(reply).startswith("MISCONF")
        resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, (-1, -1))


# ---- limits --------------------------------------------------------------------------------


def test_a_node_that_does_not_read_is_dropped_and_comes_back(disque_server: NodeFactory) -> None:
    node = disque_server("--cluster-link-sendbuf-limit", "1mb")
    with FakePeer(node) as peer:
        peer.join()
        wire = node.wire()

        def dropped() -> bool:
            wire("ADDJOB", "q", "x" * 500_000, 0, "REPLICATE", 2, "ASYNC")
            return node.info("stats")["cluster_links_buffer_limit_exceeded"] == "1"

        wait_until(dropped)
        assert peer.from_node.closed()
        peer.accept()
        assert packet_type(peer.from_node.read()) == PING


@pytest.mark.pure
def test_half_packets_are_not_held_beyond_what_the_node_may_take(
    disque_server: NodeFactory,
) -> None:
    node = disque_server("--maxmemory", "8mb", "--maxmemory-bus", "4mb")
    with FakePeer(node) as peer:
        peer.join()
        packet = peer.packets.jobs(REPLJOB, [serial_job(peer, 1, bytes(3 << 20))])
        large = peer.packets.jobs(REPLJOB, [serial_job(peer, 2, bytes(5 << 20))])
        peer.to_node.send(large)
        peer.ping()
        assert node.info("stats")["cluster_packets_refused"] == "1"
        others = [bus_wire(node) for _ in range(2)]
        for other in others:
            other.send(peer.packets.gossip(PING, []))
            other.read()
            other.send(packet[:-1])
            wait_until(lambda: node.info("memory")["mem_cluster_links"] == str(len(packet) - 1))
        assert others[0].closed()
        assert node.info("stats")["evicted_cluster_links"] == "1"
        others[1].send(packet[-1:])
        peer.expect(GOTJOB)
        for number in (3, 4):
            peer.to_node.send(
                peer.packets.jobs(REPLJOB, [serial_job(peer, number, bytes(3 << 20))])
            )
            peer.ping()  # the next packet sees the memory in use by then
        # Three quarters of the memory are in use: the next copy is refused.
        assert node.info("jobs")["registered_jobs"] == "2"
        peer.to_node.send(packet)
        peer.expect(GOTJOB, 2)
        assert node.info("stats")["cluster_packets_refused"] == "2"
        for other in others:
            other.close()
