"""The bus while the node's changes are being written to the disk."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from disque_trio.cluster import packethold
from disque_trio.config import Config
from disque_trio.protocol.bus import GOTJOB
from tests.support.bus_bench import JOB_PACKET, PACKETS, PING_PACKET, Bench, receive


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path, Config({"bind": ["127.0.0.1"]}))
    yield bench
    bench.close()


def job_packet(number: int) -> bytes:
    return PACKETS.about_job(GOTJOB, b"D-%038d" % number)


def test_signs_of_life_overtake_what_is_about_jobs(bench: Bench) -> None:
    link, other = bench.up()
    link.send(job_packet(1))
    link.send(PING_PACKET)
    link.send(job_packet(2))
    bench.bus.hold()
    bench.bus.flush()
    assert receive(other, len(PING_PACKET)) == PING_PACKET
    link.send(PING_PACKET)
    link.send(job_packet(3))
    bench.bus.flush()
    assert receive(other, len(PING_PACKET)) == PING_PACKET
    bench.bus.release()
    bench.bus.flush()
    jobs = job_packet(1) + job_packet(2) + job_packet(3)
    assert receive(other, len(jobs)) == jobs


def test_what_was_held_can_be_revoked(bench: Bench) -> None:
    link, other = bench.up()
    link.send(JOB_PACKET)
    bench.bus.hold()
    bench.bus.flush()
    bench.bus.roll_back()
    bench.bus.release()
    bench.bus.flush()
    link.send(PING_PACKET)
    bench.bus.flush()
    assert receive(other, len(PING_PACKET)) == PING_PACKET


def test_packets_about_jobs_are_taken_later_and_in_order(bench: Bench) -> None:
    other = bench.admit()
    bench.bus.hold()
    other.sendall(job_packet(1) + PING_PACKET + job_packet(2) + PING_PACKET)
    bench.turns_until(lambda: bench.notes.packets.count(PING_PACKET) == 2)
    assert len(bench.notes.packets) == 2
    bench.bus.release()
    other.sendall(job_packet(3) + PING_PACKET)
    bench.turns_until(lambda: len(bench.notes.packets) == 3)
    assert bench.notes.packets[2:] == [PING_PACKET]
    bench.bus.take_held(0)
    assert bench.notes.packets[3:] == [job_packet(1), job_packet(2), job_packet(3)]


def test_what_came_before_its_link_was_closed_is_taken_as_well(bench: Bench) -> None:
    other = bench.admit()
    bench.bus.hold()
    other.sendall(PING_PACKET + job_packet(1))
    bench.turns_until(lambda: PING_PACKET in bench.notes.packets)
    other.close()
    bench.turns_until(lambda: not bench.links.count)
    bench.bus.take_held(0)
    assert bench.notes.packets == [PING_PACKET, job_packet(1)]


def test_what_is_held_is_bounded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packethold, "MOST_HELD", 10 * len(JOB_PACKET))
    other = bench.admit()
    bench.bus.hold()
    other.sendall(JOB_PACKET * 11)
    bench.turns_until(lambda: bench.links.hold.is_full())
    assert bench.links.memory == 11 * len(JOB_PACKET)
    other.sendall(JOB_PACKET * 5)
    bench.turn()
    bench.bus.take_held(0)
    assert bench.links.memory == 0
    assert len(bench.notes.packets) == 11
    bench.turns_until(lambda: len(bench.notes.packets) == 16)


def test_heartbeats_go_on_however_much_is_held(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the others would take the node for dead."""
    monkeypatch.setattr(packethold, "MOST_HELD", 10 * len(JOB_PACKET))
    patience = Config().cluster_node_timeout // 2
    other = bench.admit()
    bench.bus.hold()
    other.sendall(JOB_PACKET * 11)
    bench.turns_until(lambda: bench.links.hold.is_full())
    bench.links.cron(1)
    other.sendall(JOB_PACKET * 5 + PING_PACKET)
    bench.links.cron(patience)
    bench.turn()
    assert bench.notes.packets == []
    bench.links.cron(1 + patience)
    bench.turns_until(lambda: bench.notes.packets == [PING_PACKET])
    assert bench.links.memory == 11 * len(JOB_PACKET)
    bench.bus.take_held(0)
    assert len(bench.notes.packets) == 12
    bench.bus.hold()
    other.sendall(JOB_PACKET)
    bench.turns_until(lambda: bench.links.memory == len(JOB_PACKET))


def test_a_held_packet_that_cannot_be_dealt_with_costs_its_link_only(bench: Bench) -> None:
    other = bench.admit()
    bench.bus.hold()
    other.sendall(JOB_PACKET + PING_PACKET)
    bench.turns_until(lambda: PING_PACKET in bench.notes.packets)

    def fail(link: object) -> None:
        raise RuntimeError("a bug")

    bench.notes.on_packet = fail
    bench.bus.take_held(0)
    bench.turns_until(lambda: "lost" in bench.heard())
