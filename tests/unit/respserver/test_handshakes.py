"""TLS on bytes, and unfinished handshakes, with a clock moved by hand."""

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from disque_trio.config import Config
from disque_trio.process.logs import Logging
from disque_trio.process.tls import for_clients
from disque_trio.respserver.io import handshakes
from disque_trio.respserver.io.engine import Engine
from disque_trio.respserver.io.handshakes import PATIENCE
from disque_trio.respserver.io.links import Links
from disque_trio.respserver.io.sealing import RECORD, Sealing
from disque_trio.respserver.io.stats import Stats
from tests.support.tls import all_certificates, client_context
from tools.bench.inprocess import StillClock, make_node


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return all_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server_context(certificates: Path) -> ssl.SSLContext:
    values = {
        "tls-port": 7712,
        "tls-cert-file": str(certificates / "ours.pem"),
        "tls-key-file": str(certificates / "ours.key"),
        "tls-ca-cert-file": str(certificates / "ours-ca.pem"),
    }
    context = for_clients(Config(values))
    assert context is not None
    return context


class Peer:
    """The client's end of TLS, in memory."""

    def __init__(self, certificates: Path) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = client_context(certificates)
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="127.0.0.1")

    def shake_hands(self, sealing: Sealing) -> None:
        done = False
        while True:
            try:
                self.tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                done = sealing.shake_hands(self.outgoing.read())
                self.incoming.write(sealing.take_out())
        if not done:
            assert sealing.shake_hands(self.outgoing.read())
        self.incoming.write(sealing.take_out())

    def sends(self, data: bytes) -> bytes:
        view = memoryview(data)
        while view:
            view = view[self.tls.write(view) :]
        return self.outgoing.read()


@pytest.fixture
def pair(certificates: Path, server_context: ssl.SSLContext) -> tuple[Peer, Sealing]:
    peer, sealing = Peer(certificates), Sealing(server_context)
    peer.shake_hands(sealing)
    return peer, sealing


def test_all_that_came_is_decrypted_at_once(pair: tuple[Peer, Sealing]) -> None:
    peer, sealing = pair
    data = bytes(range(256)) * 300
    assert len(data) > 4 * RECORD
    assert sealing.decrypt(peer.sends(data)) == data
    assert sealing.half == 0
    assert not sealing.unread


@pytest.mark.parametrize("size", [1, 7, 1000, 20_000])
def test_it_may_come_in_any_pieces(pair: tuple[Peer, Sealing], size: int) -> None:
    peer, sealing = pair
    data = b"x" * 50_000
    sent = peer.sends(data)
    got = b""
    for start in range(0, len(sent), size):
        got += sealing.decrypt(sent[start : start + size])
        assert sealing.half <= RECORD + 2048
    assert got == data
    assert sealing.half == 0


def test_half_a_record_counts(pair: tuple[Peer, Sealing]) -> None:
    peer, sealing = pair
    sent = peer.sends(b"x" * RECORD)
    assert sealing.decrypt(sent[:10_000]) == b""
    assert 9_000 < sealing.half <= 10_000
    assert sealing.decrypt(sent[10_000:]) == b"x" * RECORD
    assert sealing.half == 0


def test_what_is_said_before_the_end_is_heard(pair: tuple[Peer, Sealing]) -> None:
    peer, sealing = pair
    sent = peer.sends(b"last words")
    with pytest.raises(ssl.SSLWantReadError):
        peer.tls.unwrap()
    assert sealing.decrypt(sent + peer.outgoing.read()) == b"last words"
    assert sealing.ended
    # The other direction still works.
    peer.incoming.write(sealing.encrypt(b"reply"))
    assert peer.tls.read() == b"reply"


def test_what_is_changed_on_the_way_is_noticed(pair: tuple[Peer, Sealing]) -> None:
    peer, sealing = pair
    sent = bytearray(peer.sends(b"something"))
    sent[-1] ^= 1
    with pytest.raises(ssl.SSLError):
        sealing.decrypt(bytes(sent))


@pytest.mark.parametrize("size", [0, 1, RECORD, RECORD + 1, 100_000])
def test_replies_of_any_size_are_encrypted(pair: tuple[Peer, Sealing], size: int) -> None:
    peer, sealing = pair
    data = b"r" * size
    peer.incoming.write(sealing.encrypt(data))
    got = b""
    while len(got) < size:
        got += peer.tls.read(RECORD)
    assert got == data


# ---- strangers ----------------------------------------------------------------------------------


class Port:
    """An engine, and connections to it that only do the handshake."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.clock = StillClock()
        self.logging = Logging(level="warning", path="/dev/null")
        log = self.logging.log
        self.engine = Engine(make_node(), Links(), Config(), self.clock, Stats(), log)
        self.all = self.engine.clients.handshakes
        self.all.context = context
        self.admitted: list[Sealing] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._socks: list[socket.socket] = []

    def stranger(self) -> socket.socket:
        sock = socket.create_connection(self._listener.getsockname(), 5)
        ours, _ = self._listener.accept()
        ours.setblocking(False)
        self._socks += [sock, ours]
        self.all.begin(ours, "stranger", self.clock.now(), self.admitted.append)
        return sock

    def settle(self) -> None:
        while self.engine.poll(0.05):
            pass

    def close(self) -> None:
        self.engine.close_all()
        self._listener.close()
        for sock in self._socks:
            sock.close()
        self.logging.close()


@pytest.fixture
def port(server_context: ssl.SSLContext) -> Iterator[Port]:
    it = Port(server_context)
    yield it
    it.close()


@pytest.mark.parametrize("said", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"])
def test_an_idle_handshake_has_a_time_limit(port: Port, said: bytes) -> None:
    sock = port.stranger()
    sock.sendall(said)
    port.settle()
    port.clock.time += PATIENCE
    port.engine.cron()
    assert len(port.all) == 1
    assert port.engine.rest() == 0  # the engine has to check again soon
    port.clock.time += 1_000
    port.engine.cron()
    assert len(port.all) == 0
    sock.settimeout(5)
    assert sock.recv(100) == b""


def test_the_oldest_makes_room(port: Port, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshakes, "MOST", 3)
    socks = [port.stranger() for _ in range(4)]
    assert len(port.all) == 3
    socks[0].settimeout(5)
    assert socks[0].recv(100) == b""
    port.settle()
    assert len(port.all) == 3


def test_strangers_are_no_clients(port: Port) -> None:
    port.stranger()
    port.settle()
    assert not port.engine.clients.connections


def test_a_client_that_disconnects_is_forgotten(port: Port) -> None:
    port.stranger().close()
    port.settle()
    assert len(port.all) == 0
    assert not port.engine.clients.beside


def test_a_handshake_in_single_bytes_is_done_in_the_end(port: Port, certificates: Path) -> None:
    sock = port.stranger()
    sock.settimeout(5)
    peer = Peer(certificates)
    while not port.admitted:
        try:
            peer.tls.do_handshake()
        except ssl.SSLWantReadError:
            pass
        sent = peer.outgoing.read()
        for byte in sent:
            sock.sendall(bytes([byte]))
            port.engine.poll(5)
        port.settle()
        if not port.admitted:
            peer.incoming.write(sock.recv(65536))
    assert len(port.all) == 0
