"""A TLS proxy in front of a plain server, with any kind of certificate."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
import trio

from tests.support.certificates import make_authority, sign
from tests.support.harness import HANG_SECONDS, free_port


class Certificates(NamedTuple):
    """Files. ca: the CA of all but ``foreign``. good: for 127.0.0.1 and localhost. expired: no
    longer valid. named: for other names. client: for clients. foreign: like good, but from the
    unknown CA ``other``."""

    directory: Path

    @property
    def ca(self) -> str:
        return str(self.directory / "ours-ca.pem")

    @property
    def other(self) -> str:
        return str(self.directory / "other-ca.pem")

    def cert(self, name: str) -> str:
        return str(self.directory / f"{name}.pem")

    def key(self, name: str) -> str:
        return str(self.directory / f"{name}.key")

    def server(self, name: str = "good", *, clients: bool = False) -> ssl.SSLContext:
        """The context of a server. clients: whether to require client certificates."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.cert(name), self.key(name))
        if clients:
            context.load_verify_locations(self.ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def all_certificates(directory: Path) -> Certificates:
    """Make the certificates."""
    make_authority(directory, "ours")
    make_authority(directory, "other")
    sign(directory, "ours", "good")
    sign(directory, "ours", "named", names="subjectAltName=DNS:disque.example")
    sign(directory, "ours", "expired", expired=True)
    sign(directory, "ours", "client")
    sign(directory, "other", "foreign")
    return Certificates(directory)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Good and bad certificates, which all tests share."""
    return all_certificates(tmp_path_factory.mktemp("certificates"))


class TlsFront:
    """Accepts TLS connections on ``port`` and forwards their data to the server at ``target``.

    Attributes:
        context: for new connections; may be replaced. served: connections that completed the
            handshake.
    """

    def __init__(self, context: ssl.SSLContext, target: int, port: int) -> None:
        self.context = context
        self.port = port
        self.served = 0
        self._target = target
        self._started = threading.Event()
        self._token: trio.lowlevel.TrioToken | None = None
        self._scope = trio.CancelScope()
        self._connections: set[trio.CancelScope] = set()
        self._thread = threading.Thread(target=trio.run, args=(self._run,))
        self._thread.start()
        assert self._started.wait(HANG_SECONDS)

    async def _run(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        with self._scope:
            async with trio.open_nursery() as nursery:
                serve = partial(trio.serve_tcp, self._serve, self.port, host="127.0.0.1")
                await nursery.start(serve)
                self._started.set()

    async def _serve(self, stream: trio.SocketStream) -> None:
        with trio.CancelScope() as scope:
            self._connections.add(scope)
            try:
                await self._pass_on(stream)
            except* (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
                pass
            finally:
                self._connections.discard(scope)

    async def _pass_on(self, stream: trio.SocketStream) -> None:
        secure = trio.SSLStream(stream, self.context, server_side=True, https_compatible=True)
        async with stream:
            await secure.do_handshake()
            self.served += 1
            target = await trio.open_tcp_stream("127.0.0.1", self._target)
            async with target, trio.open_nursery() as nursery:
                nursery.start_soon(self._to_target, secure, target)
                while data := await target.receive_some():
                    await secure.send_all(data)
                nursery.cancel_scope.cancel()

    async def _to_target(
        self, secure: "trio.SSLStream[trio.SocketStream]", target: trio.SocketStream
    ) -> None:
        try:
            while data := await secure.receive_some():
                await target.send_all(data)
        except trio.BrokenResourceError:
            pass
        await target.send_eof()

    def break_all(self) -> None:
        """Cut all connections."""

        def cut() -> None:
            for scope in list(self._connections):
                scope.cancel()

        assert self._token is not None
        self._token.run_sync_soon(cut)

    def close(self) -> None:
        """End it."""
        assert self._token is not None
        self._token.run_sync_soon(self._scope.cancel)
        self._thread.join()


@contextmanager
def tls_front(context: ssl.SSLContext, target: int) -> Iterator[TlsFront]:
    """A proxy for the duration of the block."""
    front = TlsFront(context, target, free_port())
    try:
        yield front
    finally:
        front.close()
