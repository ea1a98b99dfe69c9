"""cluster-secret on the bus: which peers get in, and that bytes get through."""

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from disque_trio.cluster.bus import MOST_UNPROVEN, PATIENCE
from disque_trio.cluster.tls import bus_tls
from disque_trio.config import Config
from disque_trio.protocol.seal import Seal, SealError, master_key
from tests.support.bus_bench import JOB_PACKET, PACKETS, PING_PACKET, Bench, is_closed, receive
from tests.support.certificates import make_certificates

SECRET = "a secret of all our nodes"
OTHER = "some secret of other nodes"
STRANGER = "192.0.2.77"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    it = Bench(tmp_path, Config())
    it.links.use_secrets([SECRET])
    yield it
    it.close()


class Peer:
    """The other node's end of a connection, driven by hand."""

    def __init__(self, bench: Bench, sock: socket.socket, opener: bool, secret: str) -> None:
        self.bench = bench
        self.sock = sock
        self.seal = Seal([master_key(secret.encode())], b"n" * 32, opener)

    def shake(self) -> None:
        """Do the handshake, as far as the other side goes along."""
        self.sock.sendall(self.seal.greeting)
        self.bench.turn()
        self.seal.open(receive(self.sock, 40))
        self.sock.sendall(self.seal.answer())
        self.bench.turn()
        if not self.seal.ready:
            self.seal.open(receive(self.sock, 20))
            self.sock.sendall(self.seal.answer())
            self.bench.turn()


def heard_nothing(bench: Bench) -> bool:
    bench.turns_until(lambda: bench.links.count == 0)
    bench.turn(0)
    return not bench.notes.packets and set(bench.heard()) <= {"lost"}


def test_large_packets_get_through_in_both_directions(bench: Bench) -> None:
    out, back = bench.joined()
    large = [PACKETS.jobs(4, [bytes((n,)) * (3 << 20)]) for n in range(6)]
    for n, packet in enumerate(large):
        (out, back)[n % 2].send(packet)
        out.send(JOB_PACKET)
    bench.turns_until(lambda: len(bench.notes.packets) == 13)
    assert sorted(bench.notes.packets) == sorted([PING_PACKET, *large, *[JOB_PACKET] * 6])
    assert not bench.links.behind
    assert bench.heard() == ["opened", "accepted"]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes certificates with openssl")
def test_it_works_over_tls(bench: Bench, tmp_path: Path) -> None:
    make_certificates(tmp_path, "ours")
    files = {"cert-file": "ours.pem", "key-file": "ours.key", "ca-cert-file": "ours-ca.pem"}
    paths = {f"tls-{name}": str(tmp_path / file) for name, file in files.items()}
    bench.links.tls = bus_tls(Config({"tls-cluster": True, **paths}))
    out, back = bench.joined()
    large = PACKETS.jobs(4, [bytes(3 << 20)])
    out.send(large)
    back.send(large)
    bench.turns_until(lambda: len(bench.notes.packets) == 3)
    assert bench.heard() == ["opened", "accepted"]


def test_what_comes_with_the_end_of_the_handshake_is_heard(bench: Bench) -> None:
    other = bench.admit()
    other.settimeout(5)
    seal = Seal([master_key(SECRET.encode())], b"n" * 32, True)
    seal.open(receive(other, 40))
    other.sendall(seal.greeting + seal.answer())
    bench.turns_until(lambda: bench.links.by_fd and next(iter(bench.links.by_fd.values())).up)
    seal.open(receive(other, 20))
    other.sendall(seal.close(PING_PACKET))
    bench.turns_until(lambda: bench.notes.packets)
    assert bench.heard() == ["accepted"]

    link = bench.connect()
    mine = bench.accept()
    peer = Seal([master_key(SECRET.encode())], b"m" * 32, False)
    mine.sendall(peer.greeting)
    bench.turns_until(lambda: link.connected)
    bench.turn()
    peer.open(receive(mine, 40 + 20))
    mine.sendall(peer.answer() + peer.close(PING_PACKET))
    bench.turns_until(lambda: len(bench.notes.packets) == 2)
    assert bench.heard() == ["accepted", "opened"]


def test_a_node_without_a_secret_is_not_heard(bench: Bench) -> None:
    other = bench.admit()
    other.sendall(PING_PACKET)
    assert heard_nothing(bench)
    assert is_closed(other)
    assert bench.stats.cluster_links_refused == 1


def test_a_node_with_a_secret_is_not_heard_by_one_without(bench: Bench) -> None:
    bench.links.use_secrets([])
    link = bench.connect()
    other = bench.accept()
    bench.turns_until(lambda: link.up)
    other.sendall(Seal([master_key(SECRET.encode())], b"n" * 32, False).greeting)
    bench.turns_until(lambda: bench.links.count == 0)
    assert bench.notes.packets == []
    assert bench.stats.cluster_links_refused == 1


@pytest.mark.parametrize("opener", [False, True])
def test_a_node_with_another_secret_is_not_heard(bench: Bench, opener: bool) -> None:
    if opener:
        other = bench.admit()
        other.settimeout(5)
    else:
        bench.connect()
        other = bench.accept()
    # The side that opened the connection proves first that it knows a secret.
    with pytest.raises((AssertionError, OSError) if opener else SealError):
        Peer(bench, other, opener, OTHER).shake()
    other.close()
    assert heard_nothing(bench)
    assert bench.stats.cluster_links_refused == 1


def test_a_node_that_ends_the_handshake_is_lost(bench: Bench) -> None:
    for greets in (False, True):
        link = bench.connect()
        other = bench.accept()
        bench.turns_until(lambda link=link: link.connected)
        if greets:
            other.sendall(Seal([master_key(OTHER.encode())], b"n" * 32, False).greeting)
            bench.turn()
        other.close()
        assert heard_nothing(bench)
    assert bench.heard() == ["lost", "lost"]


@pytest.mark.parametrize("at", [0, 4, 19, 20, 30])
def test_a_changed_record_ends_the_connection(bench: Bench, at: int) -> None:
    other = bench.admit()
    other.settimeout(5)
    peer = Peer(bench, other, True, SECRET)
    peer.shake()
    record = bytearray(peer.seal.close(PING_PACKET))
    record[at] ^= 1
    other.sendall(record)
    assert heard_nothing(bench)


def test_a_record_that_comes_twice_is_heard_once(bench: Bench) -> None:
    other = bench.admit()
    other.settimeout(5)
    peer = Peer(bench, other, True, SECRET)
    peer.shake()
    other.sendall(peer.seal.close(PING_PACKET) * 2)
    bench.turns_until(lambda: bench.links.count == 0)
    assert len(bench.notes.packets) <= 1


def test_a_handshake_that_does_not_end_is_dropped_in_time(bench: Bench) -> None:
    silent = bench.admit()
    slow = bench.admit()
    slow.sendall(Seal([master_key(SECRET.encode())], b"n" * 32, True).greeting)
    outgoing = bench.connect()
    mute = bench.accept()
    bench.turns_until(lambda: outgoing.connected)
    now = bench.clock.now()
    bench.links.cron(now)
    assert bench.links.count == 3
    bench.links.cron(now + PATIENCE + 1000)
    assert bench.links.count == 0
    for sock in (silent, slow, mute):
        assert is_closed(sock)


def test_strangers_do_not_take_the_place_of_who_knows_the_secret(bench: Bench) -> None:
    other = bench.admit()
    other.settimeout(5)
    peer = Peer(bench, other, True, SECRET)
    peer.shake()
    for _ in range(2 * MOST_UNPROVEN):
        bench.admit()
    assert bench.links.count == MOST_UNPROVEN
    other.sendall(peer.seal.close(PING_PACKET))
    bench.turns_until(lambda: bench.notes.packets)
    assert bench.heard() == ["accepted"]


def test_strangers_do_not_end_handshakes_that_the_node_began(bench: Bench) -> None:
    outgoing = bench.connect()
    bench.turns_until(lambda: outgoing.connected)
    for _ in range(2 * MOST_UNPROVEN):
        bench.admit()
    assert not outgoing.closed
    assert bench.links.count == MOST_UNPROVEN + 1


def test_a_member_of_another_machine_is_let_in_where_no_address_was_named(bench: Bench) -> None:
    def comes(ip: str) -> bool:
        theirs = socket.create_connection(bench.address, 5)
        bench.others.append(theirs)
        inside, _ = bench.listener.accept()
        inside.setblocking(False)
        before = bench.links.count
        bench.bus.admit(inside, ip, True)
        return bench.links.count > before

    assert comes(STRANGER)
    bench.links.use_secrets([])
    assert not comes(STRANGER)
    assert comes("127.0.0.1")


def test_links_that_do_not_fit_a_changed_secret_are_closed(bench: Bench) -> None:
    bench.joined()
    bench.links.use_secrets([OTHER, SECRET])
    bench.turn(0)
    assert bench.links.count == 2
    bench.connect_to_itself()
    bench.turns_until(lambda: bench.heard().count("opened") == 2)
    bench.links.use_secrets([OTHER])
    bench.turn(0)
    assert bench.links.count == 2
    bench.links.use_secrets([])
    assert bench.links.count == 0
    bench.turn(0)
    plain = bench.connect_to_itself()
    bench.turns_until(lambda: plain.up)
    bench.links.use_secrets([SECRET])
    assert bench.links.count == 0


def test_packets_about_jobs_that_are_rolled_back_leave_no_gap(bench: Bench) -> None:
    out, _ = bench.joined()
    out.send(JOB_PACKET)
    bench.bus.roll_back()
    bench.turn(0)
    out.send(PING_PACKET)
    bench.turns_until(lambda: len(bench.notes.packets) == 2)
    assert bench.notes.packets == [PING_PACKET] * 2
