"""A client that breaks the protocol can read the error, even with unread data in flight."""

import socket
from collections.abc import Callable, Iterator

import pytest

from disque_trio.config import Config
from disque_trio.process.logs import Logging
from disque_trio.respserver.io import lingering
from disque_trio.respserver.io.engine import Engine
from disque_trio.respserver.io.lingering import LONGEST, SILENCE
from disque_trio.respserver.io.links import Links
from disque_trio.respserver.io.stats import Stats
from tests.support.node_bench import START
from tools.bench.inprocess import StillClock, make_node, request

MB = 1024 * 1024
TOO_LONG = b"-ERR Protocol error: invalid bulk length\r\n"


class Service:
    """An engine with clients over TCP, where a close with unread data drops the replies."""

    def __init__(self) -> None:
        self.config = Config()
        self.config.proto_max_bulk_len = 100_000
        self.clock = StillClock()
        self.logging = Logging(level="warning", path="/dev/null")
        self.engine = Engine(
            make_node(), Links(), self.config, self.clock, Stats(), self.logging.log
        )
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.socks: list[socket.socket] = []

    def client(self) -> socket.socket:
        sock = socket.create_connection(self._listener.getsockname(), 5)
        ours, _ = self._listener.accept()
        ours.setblocking(False)
        self.engine.clients.add(ours, "client", False)
        sock.setblocking(False)
        self.socks.append(sock)
        return sock

    def send(self, sock: socket.socket, data: bytes) -> None:
        """Send everything before reading; raise the errors a client would see."""
        view = memoryview(data)
        while view:
            try:
                view = view[sock.send(view) :]
            except BlockingIOError:
                assert self.engine.poll(5), "the server does not read any more"
        self.settle()

    def settle(self) -> None:
        while self.engine.poll(0.02):
            pass

    def read(self, sock: socket.socket) -> bytes:
        """Return everything up to the end."""
        sock.settimeout(5)
        parts = []
        while data := sock.recv(MB):
            parts.append(data)
        return b"".join(parts)

    def close(self) -> None:
        self.engine.close_all()
        self._listener.close()
        for sock in self.socks:
            sock.close()
        self.logging.close()


@pytest.fixture
def service() -> Iterator[Service]:
    it = Service()
    yield it
    it.close()


Cause = Callable[[Service], tuple[bytes, bytes]]


def long_argument(service: Service) -> tuple[bytes, bytes]:
    return request(b"ADDJOB", b"q", bytes(20 * MB), b"0"), b"invalid bulk length"


def long_line(service: Service) -> tuple[bytes, bytes]:
    return b"x" * 20 * MB, b"too big inline request"


def full_buffer(service: Service) -> tuple[bytes, bytes]:
    service.config.client_query_buffer_limit = 200_000
    argument = b"$50000\r\n" + bytes(50_000) + b"\r\n"
    return b"*400\r\n" + 400 * argument, b"too big query buffer"


def stranger(service: Service) -> tuple[bytes, bytes]:
    service.engine.node.users.require(b"secret")
    argument = b"$50000\r\n" + bytes(50_000) + b"\r\n"
    return b"*400\r\n" + 400 * argument, b"unauthenticated multibulk length"


@pytest.mark.parametrize("cause", [long_argument, long_line, full_buffer, stranger])
def test_a_client_that_sends_everything_before_reading_gets_the_error(
    service: Service, cause: Cause
) -> None:
    data, problem = cause(service)
    sock = service.client()
    service.send(sock, data)
    assert service.read(sock) == b"-ERR Protocol error: " + problem + b"\r\n"
    sock.close()
    service.settle()
    assert not service.engine.clients.lingering.sockets


def test_replies_that_wait_come_before_the_error(service: Service) -> None:
    service.config.proto_max_bulk_len = 16 * MB
    sock = service.client()
    good = request(b"ECHO", bytes(16 * MB))
    service.send(sock, good + request(b"ECHO", bytes(32 * MB)))
    [connection] = service.engine.clients.connections.values()
    assert connection.unsent
    expected = len(b"$16777216\r\n") + 16 * MB + 2 + len(TOO_LONG)
    answer = bytearray()
    while len(answer) < expected:
        try:
            answer += sock.recv(MB)
        except BlockingIOError:
            service.engine.poll(1)
    assert answer.endswith(TOO_LONG)


def test_a_client_that_never_closes_is_cut_off_in_time(service: Service) -> None:
    sock = service.client()
    service.send(sock, request(b"ECHO", bytes(MB)))
    assert not service.engine.clients.connections  # no longer counted as a client
    service.clock.time = START + SILENCE
    service.engine.cron()
    assert service.engine.clients.lingering.sockets
    service.clock.time += 1000
    service.engine.cron()
    assert not service.engine.clients.lingering.sockets


def test_a_client_that_keeps_sending_is_cut_off_as_well(service: Service) -> None:
    sock = service.client()
    service.send(sock, request(b"ECHO", bytes(MB)))
    while service.engine.clients.lingering.sockets:
        assert service.clock.time <= START + LONGEST + 2 * SILENCE
        service.clock.time += SILENCE // 2
        sock.send(bytes(1000))
        service.settle()
        service.engine.cron()
    assert service.clock.time > START + LONGEST


def test_only_so_many_are_waited_for(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lingering, "MOST", 3)
    for _ in range(5):
        service.send(service.client(), request(b"ECHO", bytes(MB)))
    assert len(service.engine.clients.lingering.sockets) == 3
    assert service.read(service.socks[-1]) == TOO_LONG


def test_a_client_that_is_told_to_go_is_not_waited_for(service: Service) -> None:
    sock = service.client()
    service.send(sock, request(b"QUIT"))
    assert service.read(sock) == b"+OK\r\n"
    assert not service.engine.clients.lingering.sockets
