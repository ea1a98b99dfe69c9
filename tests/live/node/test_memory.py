"""The memory that clients and other nodes can make a node process use."""

import os
import signal
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from disque_trio.protocol.bus import PING, REPLJOB
from tests.support.fake_peer import FakePeer, bus_wire
from tests.support.harness import LiveNode, NodeFactory, Wire, wait_until
from tests.support.live_helpers import add_job, info_value, packed, receive_all

MB = 1024 * 1024
MAXMEMORY = 50  # MB
# Covers the clients, the work of a turn, and what the allocator keeps.
MOST = MAXMEMORY + 100  # MB


def half_request(size: int) -> bytes:
    """Return an incomplete ADDJOB, with ``size`` bytes of a slightly longer body."""
    return b"*4\r\n$6\r\nADDJOB\r\n$1\r\nq\r\n$%d\r\n" % (size + 100) + bytes(size)


def peak(node: LiveNode) -> int:
    """Return the peak memory of the process in MB."""
    for line in Path(f"/proc/{node.process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) // 1024
    raise AssertionError("no VmHWM")


def small_node(disque_server: NodeFactory) -> LiveNode:
    return disque_server("--maxmemory", f"{MAXMEMORY}mb")


def grows(node: LiveNode, load: Callable[[], object]) -> int:
    """Call ``load``; return by how many MB the peak memory of ``node`` grows."""
    before = peak(node)
    load()
    return peak(node) - before


def send(wire: Wire, data: bytes) -> None:
    """Send ``data``, or as much of it as the node takes."""
    try:
        wire.raw(data)
    except (BrokenPipeError, ConnectionResetError):
        pass


def test_twenty_clients_with_half_requests_are_bounded_by_default(
    disque_server: NodeFactory,
) -> None:
    node = small_node(disque_server)
    wires = [node.wire() for _ in range(20)]
    half = half_request(20 * MB)
    assert grows(node, lambda: [send(wire, half) for wire in wires]) < MOST
    wait_until(lambda: info_value(node, "stats", "evicted_clients") >= 17)
    assert info_value(node, "memory", "mem_clients_normal") <= MAXMEMORY * MB


def test_many_clients_with_a_little_each_are_bounded(disque_server: NodeFactory) -> None:
    node = small_node(disque_server)
    wires = [node.wire() for _ in range(300)]
    half = half_request(MB)
    assert grows(node, lambda: [send(wire, half) for wire in wires]) < MOST
    wait_until(lambda: info_value(node, "stats", "evicted_clients") >= 240)


def test_replies_that_are_not_read_are_bounded_within_a_turn(disque_server: NodeFactory) -> None:
    node = small_node(disque_server)
    ask = packed("SHOW", add_job(node.wire(), "q", bytes(20 * MB)))
    wires = [node.wire() for _ in range(50)]

    def all_at_once() -> None:
        os.kill(node.process.pid, signal.SIGSTOP)
        for wire in wires:
            wire.raw(ask)
        os.kill(node.process.pid, signal.SIGCONT)
        wait_until(lambda: info_value(node, "stats", "evicted_clients") >= 45)

    assert grows(node, all_at_once) < MOST + 100


def test_queued_and_blocked_requests_are_bounded(disque_server: NodeFactory) -> None:
    node = small_node(disque_server)
    wires = [node.wire() for _ in range(40)]
    command = packed("ADDJOB", "q", bytes(MB), 0)

    def load() -> None:
        for number, wire in enumerate(wires):
            blocked = number % 2 == 0  # the node reads no further then
            send(wire, packed("GETJOB", "FROM", "empty") if blocked else packed("MULTI"))
            for _ in range(1 if blocked else 10):
                send(wire, command)

    assert grows(node, load) < MOST
    wait_until(lambda: info_value(node, "memory", "mem_clients_normal") <= MAXMEMORY * MB)
    assert node.wire()("QLEN", "q") == 0


def test_half_packets_of_other_nodes_are_bounded_by_default(disque_server: NodeFactory) -> None:
    node = small_node(disque_server)
    with FakePeer(node) as peer:
        peer.join()
        size = 40 * MB
        start = peer.packets.packet(REPLJOB, struct.pack(">II", 1, size) + bytes(44))
        packet = start[:4] + struct.pack(">I", size) + start[8:] + bytes(size * 3 // 4)
        wires = [bus_wire(node) for _ in range(8)]

        def load() -> None:
            for wire in wires:
                wire.send(peer.packets.gossip(PING, []))
                wire.read()
                wire.send(packet)
            wait_until(lambda: node.info("stats")["evicted_cluster_links"] == "7")

        assert grows(node, load) < MOST
        for wire in wires:
            wire.close()


@pytest.mark.parametrize(
    "limit",
    [
        ["--client-output-buffer-limit", "normal 20mb 0 0"],
        ["--maxmemory", "100mb", "--maxmemory-clients", "20mb"],
    ],
)
def test_a_group_whose_replies_are_beyond_the_limit_ends_its_client(
    disque_server: NodeFactory, limit: list[str]
) -> None:
    node = disque_server(*limit)
    add_job(node.wire(), "big", bytes(MB))
    wire = node.wire()
    wire.raw(packed("MULTI") + packed("QPEEK", "big", 1) * 300)
    said: list[bytes] = []

    def run() -> None:
        wire.raw(packed("EXEC"))
        said.append(receive_all(wire.sock))

    assert grows(node, run) < 100
    assert b"-ERR the replies of the group are too long" in said[0].splitlines()[-1]
    assert node.ask("PING") == b"PONG"
