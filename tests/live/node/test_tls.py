"""Clients that speak TLS with a node, and clients that fail to."""

import os
import signal
import socket
import ssl
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from disque_trio.respserver.io.handshakes import MOST
from tests.support.harness import (
    HANG_SECONDS,
    LiveNode,
    NodeFactory,
    free_port,
    start_process,
    wait_for_ping,
    wait_until,
)
from tests.support.tls import HOST, TlsWire, all_certificates, client_context, tls_options

MB = 1024 * 1024


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return all_certificates(tmp_path_factory.mktemp("certificates"))


class TlsNode:
    """A node that also listens for TLS, and ways to connect to it."""

    def __init__(self, node: LiveNode, port: int, certificates: Path) -> None:
        self.node = node
        self.port = port
        self.certificates = certificates
        self._closing = ExitStack()

    def wire(self, own: str | None = "client", context: ssl.SSLContext | None = None) -> TlsWire:
        context = context or client_context(self.certificates, own)
        return self._closing.enter_context(closing(TlsWire(self.port, context)))

    def raw(self) -> socket.socket:
        sock = socket.create_connection((HOST, self.port), HANG_SECONDS)
        return self._closing.enter_context(closing(sock))

    def refuses(self, own: str | None, context: ssl.SSLContext | None = None) -> bool:
        """Return whether a client is turned away before its first reply."""
        try:
            return self.wire(own, context)("PING") != b"PONG"
        except (OSError, EOFError):
            return True

    def close(self) -> None:
        self._closing.close()


Start = Callable[..., TlsNode]


@pytest.fixture(scope="module")
def shared(certificates: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsNode]:
    """A node shared by several tests, each of which sets ``tls-auth-clients``."""
    port, tls_port = free_port(), free_port()
    directory = tmp_path_factory.mktemp("shared")
    options = ["--port", str(port), "--bind", HOST, *tls_options(certificates, tls_port)]
    process = start_process(directory, port, *options)
    node = TlsNode(process, tls_port, certificates)
    try:
        assert wait_for_ping(process)
        yield node
    finally:
        node.close()
        process.close()


@pytest.fixture
def start(disque_server: NodeFactory, certificates: Path) -> Iterator[Start]:
    """Start a node with TLS: ``start("--hz", "100", auth="no")``, or with a configuration file
    that names its certificates: ``start(conf=file)``."""
    started: list[TlsNode] = []

    def launch(*options: str, auth: str = "yes", conf: Path | None = None) -> TlsNode:
        port = free_port()
        if conf is None:
            node = disque_server(*tls_options(certificates, port, auth), *options)
        else:
            node = disque_server(str(conf), "--tls-port", str(port), *options)
        started.append(TlsNode(node, port, certificates))
        return started[-1]

    yield launch
    for it in started:
        it.close()


@pytest.mark.pure
def test_commands_are_served_and_the_client_is_one_like_any_other(start: Start) -> None:
    node = start()
    wire = node.wire()
    id = wire("ADDJOB", "q", "body", 0)
    assert wire("GETJOB", "FROM", "q") == [[b"q", id, b"body"]]
    assert wire("ACKJOB", id) == 1
    line = node.node.ask("CLIENT", "LIST")
    assert isinstance(line, bytes)
    assert f"laddr={HOST}:{node.port}" in line.decode()
    assert node.node.info("clients")["tls_clients"] == "1"
    assert node.node.ask("CLIENT", "KILL", "TYPE", "normal") == 1
    assert wire.closed()


@pytest.mark.pure
def test_a_waiting_client_gets_its_job(start: Start) -> None:
    node = start()
    wire = node.wire()
    wire.send("GETJOB", "FROM", "q")
    wait_until(lambda: node.node.info("clients")["blocked_clients"] == "1")
    id = node.node.ask("ADDJOB", "q", "body", 0)
    assert wire.read() == [[b"q", id, b"body"]]


@pytest.mark.pure
def test_large_bodies_go_both_ways(start: Start) -> None:
    node = start()
    wire = node.wire()
    body = os.urandom(MB) * 64
    id = wire("ADDJOB", "q", body, 0)
    wire.send("GETJOB", "FROM", "q")
    wire.send("SHOW", id)
    wire.send("PING")
    assert wire.read() == [[b"q", id, body]]
    assert isinstance(wire.read(), list)
    assert wire.read() == b"PONG"


@pytest.mark.pure
def test_many_requests_at_once_are_all_answered(start: Start) -> None:
    request = b"*2\r\n$4\r\nECHO\r\n$9\r\nsomething\r\n"
    assert start().wire().converse(request * 50_000, 50_000) == [b"something"] * 50_000


def test_a_client_that_does_not_read_its_replies_is_dropped(start: Start) -> None:
    node = start("--client-output-buffer-limit", "normal 1mb 0 0")
    wire = node.wire()
    id = wire("ADDJOB", "q", "x" * MB, 0)
    for _ in range(30):
        wire.send("SHOW", id)
    wait_until(lambda: node.node.info("clients")["tls_clients"] == "0")


def test_unfinished_requests_count_for_the_memory_of_clients(start: Start) -> None:
    node = start("--maxmemory-clients", "2mb")
    wire = node.wire()
    with suppress(OSError):  # it may be closed before all is sent
        wire.raw(b"*2\r\n$4\r\nECHO\r\n$8000000\r\n" + bytes(3 * MB))
    wait_until(lambda: node.node.info("stats")["evicted_clients"] == "1")


@pytest.mark.parametrize(
    ("auth", "own", "let_in"),
    [
        ("yes", "client", True),
        ("yes", None, False),
        ("yes", "expired", False),
        ("yes", "foreign", False),
        ("optional", "client", True),
        ("optional", None, True),
        ("optional", "expired", False),
        ("optional", "foreign", False),
        ("no", None, True),
        ("no", "foreign", True),
    ],
)
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_client_certificates_are_required_as_configured(
    shared: TlsNode, auth: str, own: str | None, let_in: bool, version: ssl.TLSVersion
) -> None:
    assert shared.node.ask("CONFIG", "SET", "tls-auth-clients", auth) == b"OK"
    context = client_context(shared.certificates, own)
    context.maximum_version = version
    assert shared.refuses(own, context) != let_in


def test_old_versions_are_refused(start: Start) -> None:
    node = start(auth="no")
    context = client_context(node.certificates, None)
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    assert node.refuses(None, context)
    context = client_context(node.certificates, None)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    assert not node.refuses(None, context)
    assert node.node.ask("CONFIG", "SET", "tls-protocols", "TLSv1.3") == b"OK"
    assert node.refuses(None, context)
    assert not node.refuses(None)


def test_unfinished_handshakes_keep_nobody_out(start: Start) -> None:
    node = start("--maxclients", "3")
    silent = [node.raw() for _ in range(MOST + 50)]
    for sock in silent[::2]:
        try:
            sock.sendall(b"\x16\x03\x01\x02\x00\x01")
        except OSError:
            pass  # it had to make room
    wires = [node.wire() for _ in range(2)]
    assert [wire("PING") for wire in wires] == [b"PONG", b"PONG"]
    assert int(node.node.info("clients")["tls_handshakes"]) <= MOST


def test_a_client_too_many_gets_an_error(start: Start) -> None:
    node = start("--maxclients", "2")
    assert [node.wire()("PING"), node.wire()("PING")] == [b"PONG", b"PONG"]
    assert "max number of clients" in str(node.wire().read())


def test_a_client_without_tls_gets_an_error_on_the_tls_port(start: Start) -> None:
    node = start()
    for request in (b"PING\r\n", b"*1\r\n$4\r\nPING\r\n", b"GET / HTTP/1.1\r\n\r\n"):
        sock = node.raw()
        sock.sendall(request)
        assert sock.recv(1000) == b"-ERR this port is for TLS only\r\n"
        assert sock.recv(1000) == b""
    sock = node.raw()
    sock.sendall(b"\x16\x03\x01" + bytes(50))
    while sock.recv(1000):
        pass
    assert node.wire()("PING") == b"PONG"
    assert node.node.info("stats")["tls_handshakes_failed"] == "4"


def test_a_tls_client_is_disconnected_from_the_plain_port(start: Start) -> None:
    node = start()
    with pytest.raises(ssl.SSLError):
        TlsWire(node.node.port, client_context(node.certificates))
    assert node.node.ask("PING") == b"PONG"


@pytest.mark.pure
def test_a_half_closed_client_gets_its_replies_and_the_end(start: Start) -> None:
    node = start()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = client_context(node.certificates)
    sock = node.raw()
    tls = context.wrap_bio(incoming, outgoing, server_hostname=HOST)
    while True:
        try:
            tls.do_handshake()
            break
        except ssl.SSLWantReadError:
            sock.sendall(outgoing.read())
            incoming.write(sock.recv(65536))
    # Requests and the client's close_notify in the same segment as the end of the handshake.
    tls.write(b"PING\r\nECHO last\r\n")
    with pytest.raises(ssl.SSLWantReadError):
        tls.unwrap()
    sock.sendall(outgoing.read())
    while data := sock.recv(65536):
        incoming.write(data)
    assert tls.read() == b"+PONG\r\n$4\r\nlast\r\n"
    tls.unwrap()  # the server's close_notify arrives: nothing was cut off


def test_a_client_that_breaks_the_protocol_can_read_why(start: Start) -> None:
    wire = start("--proto-max-bulk-len", "100kb").wire()
    wire.raw(b"*2\r\n$4\r\nECHO\r\n$20000000\r\n" + bytes(20 * MB))
    assert "invalid bulk length" in str(wire.read())
    assert wire.closed()


@pytest.mark.parametrize("how", ["SET", "SIGHUP"])
def test_certificates_are_changed_while_clients_work(
    start: Start, tmp_path: Path, certificates: Path, how: str
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    for kind in ("pem", "key"):
        (own / f"server.{kind}").write_bytes((certificates / f"ours.{kind}").read_bytes())
    files = [str(own / "server.pem"), str(own / "server.key")]
    conf = tmp_path / "node.conf"
    authority = certificates / "ours-ca.pem"
    conf.write_text(
        f"tls-cert-file {files[0]}\ntls-key-file {files[1]}\ntls-ca-cert-file {authority}\n"
    )
    node = start(conf=conf)
    old = node.wire()
    before = old.certificate
    stop = threading.Event()
    replies: list[object] = []
    worker = node.wire()

    def work() -> None:
        while not stop.is_set():
            replies.append(worker("PING"))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        # A key that does not match changes nothing.
        (own / "server.pem").write_bytes((certificates / "next.pem").read_bytes())
        if how == "SET":
            refused = node.node.wire().error("CONFIG", "SET", "tls-cert-file", files[0])
            assert refused.endswith("Unable to update TLS configuration. Check server logs.")
            pair = [str(certificates / "next.pem"), str(certificates / "ours.key")]
            args = ["tls-cert-file", pair[0], "tls-key-file", pair[1]]
            assert "Unable to update" in node.node.wire().error("CONFIG", "SET", *args)
            assert node.wire().certificate == before
            args[3] = str(certificates / "next.key")
            assert node.node.ask("CONFIG", "SET", *args) == b"OK"
        else:
            node.node.process.send_signal(signal.SIGHUP)
            wait_until(lambda: "not reloaded" in node.node.log.read_text())
            assert node.wire().certificate == before
            (own / "server.key").write_bytes((certificates / "next.key").read_bytes())
            node.node.process.send_signal(signal.SIGHUP)
        wait_until(lambda: node.wire().certificate != before)
        count = len(replies)
        wait_until(lambda: len(replies) > count + 100)
    finally:
        stop.set()
        thread.join()
    assert all(reply == b"PONG" for reply in replies)
    assert old("PING") == b"PONG"


def test_a_node_without_a_file_reads_certificates_again(
    start: Start, tmp_path: Path, certificates: Path
) -> None:
    files = {"cert": tmp_path / "server.pem", "key": tmp_path / "server.key"}
    for file in files.values():
        file.write_bytes((certificates / f"ours{file.suffix}").read_bytes())
    options = [word for kind, file in files.items() for word in (f"--tls-{kind}-file", str(file))]
    node = start(*options)
    before = node.wire().certificate
    for file in files.values():
        file.write_bytes((certificates / f"next{file.suffix}").read_bytes())
    node.node.process.send_signal(signal.SIGHUP)
    wait_until(lambda: node.wire().certificate != before)


def test_an_expired_certificate_is_loaded(start: Start, certificates: Path) -> None:
    node = start()
    args = ["tls-cert-file", str(certificates / "expired.pem")]
    args += ["tls-key-file", str(certificates / "expired.key")]
    assert node.node.ask("CONFIG", "SET", *args) == b"OK"
    assert node.refuses("client")  # it is the client that refuses
    context = client_context(certificates)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    assert not node.refuses("client", context)
