"""Incomplete packets on the bus: counted, bounded, and skipped when they could not be taken."""

import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from disque_trio.config import Config
from disque_trio.config.memory_limit import MemoryLimit
from disque_trio.protocol.bus import REPLJOB, YOURJOBS, PacketWriter
from tests.support.bus_bench import PACKETS, PING_PACKET, Bench, is_closed


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    it = Bench(tmp_path, Config())
    yield it
    it.close()


MB = 1 << 20


def half_a_job(size: int, sender: bytes = PACKETS.id) -> bytes:
    """Return the first bytes of a REPLJOB of ``size`` bytes, without its body."""
    start = PacketWriter(sender, 7711).packet(REPLJOB, struct.pack(">II", 1, size) + bytes(44))
    return start[:4] + struct.pack(">I", size) + start[8:]


def member(bench: Bench) -> socket.socket:
    """Return the connection of a member."""
    other = bench.admit()
    other.settimeout(0.01)
    send(bench, other, PING_PACKET)
    return other


def send(bench: Bench, other: socket.socket, data: bytes) -> bool:
    """Send ``data``; return whether the bus took all of it."""
    view = memoryview(data)
    try:
        while view:
            try:
                view = view[other.send(view[: 1 << 18]) :]
            except TimeoutError:
                pass
            bench.turn(0)
        while bench.links.count and bench.poller.epoll.poll(0.02):
            bench.turn(0)
    except ConnectionError:
        return False
    return True


def held(bench: Bench) -> int:
    return bench.links.halves.holdings.total


def bound(bench: Bench, size: int) -> None:
    bench.config.maxmemory_bus = MemoryLimit(size)
    bench.links.halves.apply()


def test_half_packets_are_counted_until_they_are_whole_or_their_link_is_gone(bench: Bench) -> None:
    first, second = member(bench), member(bench)
    start = half_a_job(3 * MB)
    for other in (first, second):
        send(bench, other, start + bytes(MB))
    assert held(bench) == 2 * (len(start) + MB)
    assert bench.links.memory == held(bench)
    send(bench, first, bytes(2 * MB - len(start)))
    assert held(bench) == len(start) + MB
    second.close()
    bench.turns_until(lambda: not held(bench))
    assert len(bench.notes.packets[-1]) == 3 * MB


def test_the_links_with_the_most_of_half_packets_are_closed_first(bench: Bench) -> None:
    bound(bench, 10 * MB)
    small, large, more = member(bench), member(bench), member(bench)
    send(bench, small, half_a_job(5 * MB) + bytes(2 * MB))
    send(bench, large, half_a_job(9 * MB) + bytes(5 * MB))
    send(bench, more, half_a_job(9 * MB) + bytes(4 * MB))
    assert is_closed(large)
    assert bench.links.count == 2
    assert bench.stats.evicted_cluster_links == 1
    bench.turn(0)
    assert bench.heard().count("lost") == 1
    send(bench, small, bytes(3 * MB - len(half_a_job(0))))
    assert len(bench.notes.packets[-1]) == 5 * MB


def test_a_lower_bound_holds_soon(bench: Bench) -> None:
    other = member(bench)
    send(bench, other, half_a_job(5 * MB) + bytes(4 * MB))
    bound(bench, 3 * MB)
    bench.links.cron(bench.clock.now())
    assert is_closed(other)


@pytest.mark.parametrize("share", [MemoryLimit(), MemoryLimit(percent=100)])
def test_without_a_bound_or_maxmemory_only_the_length_of_an_argument_counts(
    bench: Bench, share: MemoryLimit
) -> None:
    bench.config.maxmemory_bus = share
    bench.config.maxmemory = 0
    bench.links.halves.apply()
    other = member(bench)
    send(bench, other, half_a_job(400 * MB) + bytes(5 * MB))
    assert held(bench) > 5 * MB


def test_a_job_as_large_as_an_argument_may_be_gets_through(bench: Bench) -> None:
    bench.config.proto_max_bulk_len = 4 * MB
    bound(bench, 5 * MB)
    other = member(bench)
    packet = PACKETS.jobs(REPLJOB, [bytes(4 * MB + 1000)])
    send(bench, other, packet)
    assert bench.notes.packets[-1] == packet
    assert held(bench) == 0


def too_long_for_an_argument(bench: Bench) -> None:
    bench.config.proto_max_bulk_len = 4 * MB


def too_long_for_the_bound(bench: Bench) -> None:
    bound(bench, 4 * MB)


def no_memory(bench: Bench) -> None:
    bench.wants_copy = lambda id: id != bytes(40)


@pytest.mark.parametrize("reason", [too_long_for_an_argument, too_long_for_the_bound, no_memory])
def test_a_packet_that_could_not_be_taken_is_passed_over_from_its_header_on(
    bench: Bench, reason: Callable[[Bench], None]
) -> None:
    reason(bench)
    other = member(bench)
    bench.notes.packets.clear()
    start = half_a_job(10 * MB)
    assert send(bench, other, start + bytes(9 * MB))
    assert held(bench) == 0
    # The link still works.
    assert send(bench, other, bytes(MB - len(start)) + PING_PACKET)
    bench.turns_until(lambda: bench.notes.packets)
    assert bench.notes.packets == [PING_PACKET]
    assert bench.stats.cluster_packets_refused == 1


def test_a_copy_that_is_known_may_be_large_where_memory_is_short(bench: Bench) -> None:
    bench.wants_copy = lambda id: id == bytes(40)
    other = member(bench)
    send(bench, other, half_a_job(3 * MB) + bytes(MB))
    assert held(bench) > MB


def test_what_others_give_is_taken_where_memory_is_short(bench: Bench) -> None:
    bench.wants_copy = lambda id: False
    other = member(bench)
    packet = PACKETS.jobs(YOURJOBS, [bytes(3 * MB)])
    send(bench, other, packet)
    assert bench.notes.packets[-1] == packet


@pytest.mark.parametrize("outgoing", [False, True])
def test_a_stranger_may_not_even_announce_a_large_packet(bench: Bench, outgoing: bool) -> None:
    link, other = bench.up() if outgoing else (None, member(bench))
    send(bench, other, half_a_job(2 * MB, b"b" * 40))
    assert is_closed(other)
    assert bench.links.count == 0
    assert link is None or not link.up
