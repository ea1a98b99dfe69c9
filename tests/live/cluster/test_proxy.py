"""The proxy that breaks the network of the cluster tests: what gets through and what does not."""

import socket
import time
from collections.abc import Iterator

import pytest

from disque_trio.protocol.bus import PING, PONG, PacketWriter
from tests.support.bus_proxy import HOST, BusProxy, Door, bus_proxy
from tests.support.harness import BUS_OFFSET, HANG_SECONDS, wait_until
from tests.support.live_cluster import free_cluster_ports

COUNT = 3


class Bus:
    """A minimal bus: it only accepts and opens connections."""

    def __init__(self, announced: int, real: int) -> None:
        self.door = Door(announced, real)
        self._packets = PacketWriter(b"%040d" % announced, announced)
        self._listener = socket.create_server((HOST, real + BUS_OFFSET))
        self._listener.settimeout(HANG_SECONDS)
        self.socks: list[socket.socket] = []

    def call(self, other: "Bus") -> "tuple[socket.socket, socket.socket]":
        """Connect to ``other`` and pass a PING; return both ends."""
        mine = self.ring(other)
        theirs, _ = other._listener.accept()
        theirs.settimeout(HANG_SECONDS)
        other.socks.append(theirs)
        assert theirs.recv(1000) == self.ping
        return mine, theirs

    def ring(self, other: "Bus") -> socket.socket:
        """Connect to ``other`` and send a PING; return the outgoing end."""
        sock = socket.create_connection((HOST, other.door.announced + BUS_OFFSET), 10)
        self.socks.append(sock)
        sock.sendall(self.ping)
        return sock

    @property
    def ping(self) -> bytes:
        return self._packets.packet(PING, b"")

    @property
    def pong(self) -> bytes:
        return self._packets.packet(PONG, b"")

    def close(self) -> None:
        for sock in [*self.socks, self._listener]:
            sock.close()


Net = tuple[BusProxy, list[Bus]]


@pytest.fixture
def net() -> Iterator[Net]:
    ports = free_cluster_ports(2 * COUNT)
    nodes = [Bus(ports[n], ports[COUNT + n]) for n in range(COUNT)]
    with bus_proxy([node.door for node in nodes]) as proxy:
        yield proxy, nodes
    for node in nodes:
        node.close()


def silent(sock: socket.socket) -> bool:
    """Return whether nothing arrives for a moment.

    A delay can only make a test too lenient.
    """
    sock.settimeout(0.1)
    try:
        sock.recv(1)
    except TimeoutError:
        return True
    finally:
        sock.settimeout(HANG_SECONDS)
    return False


def test_packets_pass_in_both_directions_and_the_links_are_known(net: Net) -> None:
    proxy, (a, b, c) = net
    mine, theirs = a.call(b)
    theirs.sendall(b.pong)
    assert mine.recv(1000) == b.pong
    c.call(a)
    assert proxy.links() == [(0, 1), (2, 0)]


def test_the_end_of_one_side_is_the_end_of_the_other(net: Net) -> None:
    proxy, (a, b, _) = net
    mine, theirs = a.call(b)
    mine.close()
    assert theirs.recv(1) == b""
    mine, theirs = a.call(b)
    theirs.close()
    assert mine.recv(1) == b""
    wait_until(lambda: proxy.links() == [])


def test_a_cut_link_is_closed_and_refused_until_it_heals_and_the_other_one_stays(net: Net) -> None:
    proxy, (a, b, _) = net
    mine, theirs = a.call(b)
    back, back_theirs = b.call(a)
    proxy.cut(0, 1)
    assert mine.recv(1) == theirs.recv(1) == b""
    assert a.ring(b).recv(1) == b""
    back.sendall(b.ping)
    assert back_theirs.recv(1000) == b.ping
    proxy.heal()
    a.call(b)


def test_what_a_stalled_direction_holds_arrives_when_it_heals(net: Net) -> None:
    proxy, (a, b, _) = net
    mine, theirs = a.call(b)
    back, back_theirs = b.call(a)
    proxy.stall(0, 1)
    mine.sendall(a.ping)
    back_theirs.sendall(a.pong)
    theirs.sendall(b.pong)
    back.sendall(b.ping)
    # What b sends arrives on both connections, what a sends on neither.
    assert mine.recv(1000) == b.pong
    assert back_theirs.recv(1000) == b.ping
    assert silent(theirs)
    assert silent(back)
    mine.close()
    assert silent(theirs)
    proxy.heal()
    assert theirs.recv(1000) == a.ping
    assert theirs.recv(1) == b""
    assert back.recv(1000) == a.pong


def test_a_delay_keeps_the_order(net: Net) -> None:
    proxy, (a, b, _) = net
    mine, theirs = a.call(b)
    proxy.delay(0, 1, 0.2)
    started = time.monotonic()
    for _ in range(5):
        mine.sendall(a.ping)
    mine.sendall(a.pong)
    wanted = 5 * a.ping + a.pong
    got = b""
    while len(got) < len(wanted):
        got += theirs.recv(1000)
    assert got == wanted
    assert time.monotonic() - started >= 0.2


def test_a_node_can_be_cut_off_and_the_others_go_on(net: Net) -> None:
    proxy, (a, b, c) = net
    for one in (a, b, c):
        for other in (a, b, c):
            if one is not other:
                one.call(other)
    proxy.isolate(2)
    wait_until(lambda: proxy.links() == [(0, 1), (1, 0)])
    assert c.ring(a).recv(1) == b""
    assert b.ring(c).recv(1) == b""


def test_in_a_ring_of_four_opposite_nodes_cannot_connect() -> None:
    ports = free_cluster_ports(8)
    nodes = [Bus(ports[n], ports[4 + n]) for n in range(4)]
    try:
        with bus_proxy([node.door for node in nodes]) as proxy:
            proxy.ring()
            nodes[0].call(nodes[1])
            nodes[0].call(nodes[3])
            assert nodes[0].ring(nodes[2]).recv(1) == b""
            assert nodes[3].ring(nodes[1]).recv(1) == b""
    finally:
        for node in nodes:
            node.close()


def test_a_caller_with_an_unknown_port_is_disconnected(net: Net) -> None:
    _, (a, b, _) = net
    stranger = PacketWriter(b"f" * 40, 9)
    with socket.create_connection((HOST, b.door.announced + BUS_OFFSET), 10) as sock:
        sock.sendall(stranger.packet(PING, b""))
        assert sock.recv(1) == b""
    a.call(b)


def test_a_node_that_is_down_refuses_what_the_proxy_takes(net: Net) -> None:
    _, (a, b, _) = net
    b.close()
    assert a.ring(b).recv(1) == b""
