"""The clients over TLS: everything works as without it, and bad certificates are refused."""

import os
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from disque_trio.client import AuthError, Client, ConnectionLost, Tls, TlsError, connect
from disque_trio.client.sync import connect as connect_sync
from disque_trio.respclient.concurrency import library
from tests.support.harness import HANG_SECONDS, LiveNode, NodeFactory, free_port, wait_until
from tests.support.loops import on_both
from tests.support.tls_front import Certificates, TlsFront, tls_front

LONG = 1000.0  # s; longer than a test may take
"""Seconds to keep trying, for errors after which the client must not retry."""


@pytest.fixture(scope="module")
def front(session_node: LiveNode, certificates: Certificates) -> Iterator[TlsFront]:
    with tls_front(certificates.server(), session_node.port) as front:
        yield front


@pytest.fixture
def tls(shared_node: LiveNode, certificates: Certificates) -> Tls:
    return Tls(certificates.ca)


def at(front: TlsFront) -> str:
    return f"127.0.0.1:{front.port}"


async def works(client: Client) -> None:
    id = await client.add("q", b"x" * 300_000, retry=10)
    [job] = await client.get("q", timeout=HANG_SECONDS)
    assert (job.id, len(job.body)) == (id, 300_000)
    assert await client.ack(id) == 1


@on_both
async def test_everything_goes_over_tls(front: TlsFront, tls: Tls) -> None:
    before = front.served
    async with connect(at(front), tls=tls) as client:
        await works(client)
        async with client.jobs("q") as jobs:  # pushed
            await client.add("q", "pushed")
            async for job in jobs:
                assert job.body == b"pushed"
                break
    assert front.served > before


@on_both
async def test_a_given_context_works_and_so_does_a_url(front: TlsFront, tls: Tls) -> None:
    async with connect(at(front), tls=tls.context()) as client:
        await works(client)
    url = f"disques://127.0.0.1:{front.port}?ssl_ca_certs={tls.ca_file}&ssl_server_name=localhost"
    async with connect(url) as client:
        await works(client)


def test_the_client_for_threads_uses_tls_in_children_too(front: TlsFront, tls: Tls) -> None:
    with connect_sync(f"disques://{at(front)}?ssl_ca_certs={tls.ca_file}") as client:
        client.add("q", "parent")
        child = os.fork()
        if child == 0:
            status = 1
            try:
                client.add("q", "child")
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert {job.body for job in client.get("q", count=2)} == {b"parent", b"child"}
        assert client.qlen("q") == 0


@on_both
async def test_a_cancelled_call_loses_no_job(front: TlsFront, tls: Tls) -> None:
    async with connect(at(front), tls=tls) as client:
        for _ in range(5):
            with library().move_on_after(0.02):
                await client.get("q", timeout=HANG_SECONDS)
        # If the server still waited for these, it would give them the job.
        id = await client.add("q", "body", retry=3600)
        [job] = await client.get("q", timeout=HANG_SECONDS)
        assert job.id == id


@on_both
async def test_it_reconnects_after_a_loss(front: TlsFront, tls: Tls) -> None:
    async with connect(at(front), tls=tls) as client:
        for _ in range(3):
            await client.add("q", "body", unique=True)
            front.break_all()
        assert await client.qlen("q") == 3


@contextmanager
def refused(said: str) -> Iterator[None]:
    """Expect that the connection is refused at once, for this reason."""
    with pytest.raises(TlsError, match=said) as error:
        yield
    assert not error.value.maybe_executed


BAD = [
    ("expired", {}, "certificate has expired"),
    ("named", {}, "not valid for '127.0.0.1'"),
    ("foreign", {}, "unable to get local issuer"),
    ("good", {"server_name": "disque.example"}, "not valid for 'disque.example'"),
]


@pytest.mark.parametrize(("name", "more", "said"), BAD)
@on_both
async def test_an_invalid_certificate_is_reported_at_once(
    node: LiveNode,
    certificates: Certificates,
    name: str,
    more: dict[str, str],
    said: str,
) -> None:
    with tls_front(certificates.server(name), node.port) as front, refused(said):
        async with connect(at(front), tls=Tls(certificates.ca, **more), retry_for=LONG):
            pass


@contextmanager
def refusing(context: ssl.SSLContext) -> Iterator[int]:
    """The port of a server that refuses all in the handshake, and says why. (Trio's own does
    not.)"""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    accepted, _ = listener.accept()
                except OSError:
                    return
                copy = socket.socket(fileno=os.dup(accepted.fileno()))
                with copy, accepted:
                    with suppress(OSError):
                        context.wrap_socket(accepted, server_side=True)
                    copy.shutdown(socket.SHUT_WR)
                    while copy.recv(1000):
                        pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@on_both
async def test_a_server_that_wants_a_client_certificate_is_reported_at_once(
    certificates: Certificates, version: ssl.TLSVersion
) -> None:
    context = certificates.server(clients=True)
    context.maximum_version = version
    with refusing(context) as port, refused("requires a certificate from us"):
        async with connect(f"127.0.0.1:{port}", tls=Tls(certificates.ca), retry_for=LONG):
            pass


@on_both
async def test_a_server_gets_the_client_certificate(
    node: LiveNode, certificates: Certificates
) -> None:
    with tls_front(certificates.server(clients=True), node.port) as front:
        ours = Tls(certificates.ca, certificates.cert("client"), certificates.key("client"))
        async with connect(at(front), tls=ours) as client:
            await works(client)


@on_both
async def test_a_server_without_tls_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            accepted, _ = listener.accept()
            with accepted:
                accepted.recv(1000)
                accepted.sendall(b"\x15\x03\x01\x00\x02\x02\x46")  # protocol version

        thread = threading.Thread(target=serve)
        thread.start()
        with refused("the server requires TLS"):
            async with connect(f"127.0.0.1:{listener.getsockname()[1]}", retry_for=LONG):
                pass
        thread.join()


@on_both
async def test_the_client_gives_up_on_a_server_that_is_silent_in_the_handshake(tls: Tls) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(ConnectionLost, match="perhaps it does not speak TLS"):
            async with connect(f"127.0.0.1:{port}", tls=tls, connect_timeout=0.05, retry_for=0.2):
                pass


@on_both
async def test_after_a_success_a_bad_certificate_may_be_renewed(
    node: LiveNode, certificates: Certificates
) -> None:
    with tls_front(certificates.server(), node.port) as front:
        async with connect(at(front), tls=Tls(certificates.ca), retry_for=LONG) as client:
            front.context = certificates.server("expired")
            front.break_all()
            async with library().open_nursery() as nursery:
                nursery.start_soon(partial(client.add, "q", "body", unique=True))
                await library().sleep(0.2)
                front.context = certificates.server()
            assert await client.qlen("q") == 1


@on_both
async def test_one_node_with_a_bad_certificate_does_not_exclude_the_others(
    node: LiveNode, certificates: Certificates
) -> None:
    with (
        tls_front(certificates.server("expired"), node.port) as bad,
        tls_front(certificates.server(), node.port) as good,
    ):
        for nodes in ([at(bad), at(good)], [at(good), at(bad)]):
            async with connect(nodes, tls=Tls(certificates.ca)) as client:
                assert client.address == at(good)
        # An unreachable one may come back.
        gone = f"127.0.0.1:{free_port()}"
        with pytest.raises(ConnectionLost, match="expired") as error:
            async with connect([at(bad), gone], tls=Tls(certificates.ca), retry_for=0.1):
                pass
        assert not isinstance(error.value, TlsError)


def test_closed_connections_leave_the_server(front: TlsFront, tls: Tls) -> None:
    with connect_sync(at(front), tls=tls) as client:
        client.qlen("q")
    wait_until(lambda: not front._connections)


def test_nodes_from_hello_are_reached_over_tls(
    disque_server: NodeFactory, certificates: Certificates, tmp_path: Path
) -> None:
    def start(number: int) -> tuple[LiveNode, str]:
        port = free_port()
        node = disque_server(
            *("--tls-port", str(port), "--tls-auth-clients", "optional"),
            *("--tls-cert-file", certificates.cert("good")),
            *("--tls-key-file", certificates.key("good")),
            *("--tls-ca-cert-file", certificates.ca, "--requirepass", "secret"),
            cwd=tmp_path / f"tls-{number}",
        )
        return node, f"127.0.0.1:{port}"

    (first, at_first), (second, at_second) = start(1), start(2)
    meet = first.wire()
    assert meet("AUTH", "secret") == b"OK"
    assert meet("CLUSTER", "MEET", second.host, second.port) == b"OK"

    def known() -> bool:
        reply = meet("HELLO")
        assert isinstance(reply, list)
        return len(reply) == 4

    wait_until(known)
    tls = Tls(certificates.ca)
    with connect_sync(at_first, username="default", password="secret", tls=tls) as client:
        # The nodes tell each other their ports over the bus.
        wait_until(lambda: at_second in {str(node.address) for node in client.hello().nodes})
        client.add("q", "body")
        used = client.address
        other = at_second if used == at_first else at_first
        (first if used == at_first else second).kill()
        client.add("q", "body", retry_lost=True, replicate=1)
        assert client.address == other
    with pytest.raises(AuthError):
        connect_sync(other, username="default", password="wrong", tls=tls, retry_for=LONG)
