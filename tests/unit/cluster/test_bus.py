"""The cluster bus: its links, and the packets it sends and receives each turn."""

import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from disque_trio.cluster.bus import MOST_UNPROVEN, PATIENCE
from disque_trio.cluster.links import Link
from disque_trio.cluster.tls import BusTls
from disque_trio.config import Config
from disque_trio.protocol.bus import GOTJOB, PING, PONG, PacketWriter
from tests.support.bus_bench import (
    JOB_PACKET,
    OS_BUFFERS,
    PACKETS,
    PING_PACKET,
    Bench,
    is_closed,
    receive,
)


@pytest.fixture
def config() -> Config:
    return Config()


@pytest.fixture
def bench(tmp_path: Path, config: Config) -> Iterator[Bench]:
    it = Bench(tmp_path, config)
    yield it
    it.close()


def test_a_link_comes_up_in_a_later_turn_and_knows_both_addresses(bench: Bench) -> None:
    link = bench.connect()
    assert not link.up
    bench.turns_until(lambda: link.up)
    assert bench.notes.told == [("opened", link)]
    assert (link.local_ip, link.remote_ip) == ("127.0.0.1", "127.0.0.1")


def test_packets_sent_before_a_link_is_up_or_after_it_closed_are_lost(bench: Bench) -> None:
    link = bench.connect()
    link.send(PING_PACKET)
    bench.turns_until(lambda: link.up)
    other = bench.accept()
    link.send(JOB_PACKET)
    bench.turn()
    assert receive(other, len(JOB_PACKET)) == JOB_PACKET
    link.close()
    link.send(PING_PACKET)
    bench.turn()
    assert is_closed(other)


def test_all_packets_of_a_turn_leave_in_one_call(bench: Bench) -> None:
    link, other = bench.up()
    before = bench.stats.cluster_sends
    for _ in range(100):
        link.send(JOB_PACKET)
    assert bench.stats.cluster_sends == before
    bench.turn()
    assert bench.stats.cluster_sends == before + 1
    assert receive(other, 100 * len(JOB_PACKET)) == 100 * JOB_PACKET


def test_a_refused_connection_is_lost_in_a_later_turn(bench: Bench) -> None:
    ip, port = bench.address
    bench.listener.close()
    bench.notes.calling = True
    link = bench.links.connect(ip, port)
    bench.notes.calling = False
    bench.turns_until(lambda: bench.notes.told)
    assert bench.notes.told == [("lost", link)]
    assert bench.links.count == 0


def test_an_address_that_cannot_be_reached_is_lost_in_a_later_turn(bench: Bench) -> None:
    bench.notes.calling = True
    link = bench.links.connect("255.255.255.255", 7711)
    bench.notes.calling = False
    assert bench.notes.told == []
    assert bench.asked  # nothing else would cause a turn
    bench.turn(0)
    assert bench.notes.told == [("lost", link)]


def test_without_a_bus_no_link_comes_up(bench: Bench) -> None:
    bench.links.enabled = False
    link = bench.connect()
    bench.turn(0)
    assert bench.notes.told == [("lost", link)]


def test_a_link_that_the_membership_closes_is_not_reported(bench: Bench) -> None:
    link, other = bench.up()
    other.close()
    bench.turns_until(lambda: bench.links.broken)
    link.close()  # it had not heard yet
    bench.turn(0)
    assert bench.heard() == ["opened"]


def test_a_link_closed_by_the_other_side_is_lost_once(bench: Bench) -> None:
    link, other = bench.up()
    other.close()
    bench.turns_until(lambda: "lost" in bench.heard())
    for _ in range(3):
        bench.turn(0)
    assert bench.heard() == ["opened", "lost"]
    assert not link.up


def test_a_socket_that_fails_while_sending_is_lost_in_a_later_turn(bench: Bench) -> None:
    link, other = bench.up()
    # With this set, close() sends a reset.
    other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    other.close()
    deadline = time.monotonic() + 5
    while not bench.links.broken and time.monotonic() < deadline:
        bench.notes.calling = True
        link.send(JOB_PACKET)
        bench.notes.calling = False
        bench.bus.flush()
    assert bench.heard() == ["opened"]
    bench.turn(0)
    assert bench.heard() == ["opened", "lost"]


def test_an_incoming_link_is_reported_with_its_first_packet(bench: Bench) -> None:
    other = bench.admit()
    bench.turn()
    other.sendall(PING_PACKET[:50])
    bench.turn()
    assert bench.heard() == []
    other.sendall(PING_PACKET[50:] + JOB_PACKET)
    bench.turns_until(lambda: bench.notes.packets)
    assert bench.heard() == ["accepted"]
    assert bench.notes.packets == [PING_PACKET, JOB_PACKET]
    link = bench.notes.told[0][1]
    assert (link.outgoing, link.up, link.remote_ip) == (False, True, "127.0.0.1")


def test_a_stranger_that_leaves_without_a_packet_is_not_reported(bench: Bench) -> None:
    bench.admit().close()
    bench.turns_until(lambda: bench.links.count == 0)
    bench.turn(0)
    assert bench.heard() == []


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"DbuZ" + struct.pack(">I", 100) + bytes(92),
        b"DbuZ" + struct.pack(">IHHHH", 1 << 25, 1, 0, PING, 0) + bytes(100),
    ],
    ids=["http", "too short", "too long"],
)
def test_garbage_closes_the_link(bench: Bench, garbage: bytes) -> None:
    other = bench.admit()
    other.sendall(PING_PACKET)
    bench.turns_until(lambda: bench.notes.packets)
    other.sendall(garbage)
    bench.turns_until(lambda: "lost" in bench.heard())
    assert bench.heard() == ["accepted", "lost"]
    assert is_closed(other)


@pytest.mark.parametrize("greeting", [b"", PING_PACKET], ids=["at once", "after a packet"])
def test_a_stranger_cannot_fill_the_memory(bench: Bench, greeting: bytes) -> None:
    bench.notes.members.clear()
    other = bench.admit()
    other.sendall(greeting)
    other.settimeout(0.01)
    large = memoryview(PACKETS.jobs(4, [bytes(OS_BUFFERS)]))
    sent = 0
    while bench.links.count and sent < OS_BUFFERS:
        try:
            sent += other.send(large[sent : sent + (1 << 18)])
        except (TimeoutError, ConnectionError):
            pass
        bench.turn(0)
    assert bench.links.count == 0
    assert sent < OS_BUFFERS


def test_a_link_closed_by_a_packet_hears_no_further_one(bench: Bench) -> None:
    bench.notes.on_packet = lambda link: link.close()
    other = bench.admit()
    other.sendall(3 * PING_PACKET)
    bench.turns_until(lambda: bench.notes.packets)
    bench.turn(0)
    assert len(bench.notes.packets) == 1
    assert bench.heard() == ["accepted"]


def test_a_packet_that_cannot_be_handled_closes_only_its_link(bench: Bench) -> None:
    def fail(link: Link) -> None:
        raise RuntimeError("a bug")

    link, _ = bench.up()
    bench.notes.on_packet = fail
    other = bench.admit()
    other.sendall(PING_PACKET)
    bench.turns_until(lambda: "lost" in bench.heard())
    assert is_closed(other)
    assert link.up


def test_packets_about_jobs_of_a_turn_that_is_not_on_disk_are_not_sent(bench: Bench) -> None:
    link, other = bench.up()
    pong = PACKETS.gossip(PONG, [])
    for packet in (JOB_PACKET, pong, JOB_PACKET):
        link.send(packet)
    bench.bus.roll_back()
    bench.bus.flush()
    link.send(PING_PACKET)
    bench.bus.flush()
    # Membership packets promise nothing about jobs: they still go out, or others would think
    # this node dead.
    assert receive(other, len(pong) + len(PING_PACKET)) == pong + PING_PACKET


def test_what_a_socket_does_not_take_is_sent_later_in_order(bench: Bench, config: Config) -> None:
    config.cluster_link_sendbuf_limit = 0
    link, other = bench.up()
    piece = PACKETS.jobs(4, [bytes(1 << 20)])
    for number in range(30):
        link.send(piece)
        link.send(PACKETS.about_job(GOTJOB, b"%040d" % number))
        bench.bus.flush()
    assert list(bench.links.behind) == [link]
    got = bytearray()
    expected = 30 * (len(piece) + len(JOB_PACKET))
    while len(got) < expected:
        bench.turn(0)
        got += other.recv(1 << 20)
    assert len(got) == expected
    at = len(piece)
    for number in range(30):
        assert got[at + 144 : at + 184] == b"%040d" % number
        at += len(piece) + len(JOB_PACKET)
    bench.turn(0)
    assert not bench.links.behind


def test_a_node_that_does_not_read_loses_its_link(bench: Bench, config: Config) -> None:
    config.cluster_link_sendbuf_limit = 1 << 20
    link, _ = bench.up()
    piece = PACKETS.jobs(4, [bytes(100_000)])
    for _ in range(OS_BUFFERS // len(piece)):
        link.send(piece)
        bench.bus.flush()
        if not link.up:
            break
    assert bench.heard() == ["opened"]
    bench.turn(0)
    assert bench.heard() == ["opened", "lost"]
    assert bench.stats.cluster_overruns == 1
    assert not bench.links.behind


def test_a_single_job_above_the_limit_gets_through(bench: Bench, config: Config) -> None:
    config.cluster_link_sendbuf_limit = 1 << 20
    link, other = bench.up()
    large = PACKETS.jobs(4, [bytes(OS_BUFFERS)])
    link.send(large)
    bench.bus.flush()
    link.send(PING_PACKET)
    bench.bus.flush()
    size = len(large) + len(PING_PACKET)
    while size:
        bench.turn(0)
        size -= len(other.recv(1 << 20))
    assert link.up


def test_a_connection_of_no_member_is_dropped_in_time(bench: Bench) -> None:
    silent, talking, stranger = bench.admit(), bench.admit(), bench.admit()
    talking.sendall(PING_PACKET)
    stranger.sendall(PacketWriter(b"b" * 40, 1).gossip(PING, []))
    bench.turns_until(lambda: len(bench.notes.packets) == 2)
    now = bench.clock.now()
    bench.links.cron(now)
    assert bench.links.count == 3
    bench.links.cron(now + PATIENCE + 1000)
    assert bench.links.count == 1
    assert is_closed(silent)
    assert is_closed(stranger)
    bench.turn(0)
    assert bench.heard() == ["accepted", "accepted", "lost"]


def test_strangers_cannot_take_all_descriptors_nor_keep_nodes_out(bench: Bench) -> None:
    for _ in range(MOST_UNPROVEN + 10):
        bench.admit()
    assert bench.links.count == MOST_UNPROVEN
    bench.admit().sendall(PING_PACKET)
    bench.turns_until(lambda: bench.notes.packets)


def test_a_connection_that_is_gone_before_tls_begins_costs_nothing_else(bench: Bench) -> None:
    class Failing:
        """Closes the socket, as TLS does when it cannot begin."""

        def wrap_socket(self, sock: socket.socket, **how: object) -> socket.socket:
            socket.socket(fileno=sock.detach()).close()
            raise OSError("gone")

    bench.links.tls = BusTls(Failing(), Failing())  # type: ignore[arg-type]
    bench.admit()
    assert bench.links.count == 0
    bench.turn(0)


def test_links_go_out_from_the_address_that_the_node_listens_on(bench: Bench) -> None:
    bench.links.sources = ["::1", "203.0.113.7", "127.0.0.3", "127.0.0.2"]
    link, other = bench.up()
    assert other.getpeername()[0] == "127.0.0.3"
    assert link.local_ip == "127.0.0.3"


def test_the_source_address_fits_where_the_link_goes(bench: Bench) -> None:
    bench.links.sources = ["203.0.113.7"]  # not an address of this machine
    _, other = bench.up()
    assert other.getpeername()[0] == "127.0.0.1"


@pytest.mark.parametrize("protected", [True, False])
def test_protected_mode_lets_only_this_machine_in(bench: Bench, protected: bool) -> None:
    bench.config.protected_mode = protected
    for ip, exposed in (("127.0.0.1", True), ("::1", True), ("192.0.2.1", False)):
        before = bench.links.count
        ours, theirs = _pair(bench)
        bench.bus.admit(ours, ip, exposed)
        assert bench.links.count == before + 1
    before = bench.links.count
    ours, theirs = _pair(bench)
    bench.bus.admit(ours, "192.0.2.1", True)
    assert bench.links.count == before + (not protected)
    assert not protected or is_closed(theirs)


def _pair(bench: Bench) -> tuple[socket.socket, socket.socket]:
    theirs = socket.create_connection(bench.address, 5)
    bench.others.append(theirs)
    ours, _ = bench.listener.accept()
    ours.setblocking(False)
    return ours, theirs
