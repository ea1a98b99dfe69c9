"""Connects to a server over TCP, TLS or a Unix socket, under Trio or asyncio."""

import ssl

import trio

from disque_trio.notation.addresses import Address
from disque_trio.respclient.concurrency import is_trio, library
from disque_trio.respclient.forks import keep_from_children
from disque_trio.respclient.tls import Encryption


async def open_stream(
    address: Address, encryption: Encryption | None = None
) -> trio.abc.HalfCloseableStream:
    """Connect to a server, encrypting network traffic if ``encryption`` is given.

    Raises:
        OSError: the server cannot be reached, or the handshake failed; see ``tls.refusal``.
    """
    used = library()
    if address.path:
        return _kept(await used.open_unix_socket(address.path))
    if encryption is None:
        return _kept(await used.open_tcp_stream(address.host, address.port))
    name = encryption.name(address.host)
    if not is_trio(used):
        from disque_trio.respclient.on_asyncio import open_tls_stream

        return await open_tls_stream(address.host, address.port, encryption.context(), name)
    stream = _kept(await used.open_tcp_stream(address.host, address.port))
    secure = _TlsStream(stream, encryption.context(), name)
    try:
        await secure.shake_hands()
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    return secure


def _kept(stream: trio.abc.HalfCloseableStream) -> trio.abc.HalfCloseableStream:
    if isinstance(stream, trio.SocketStream):
        keep_from_children(stream, stream.socket.fileno)
    return stream


class _TlsStream(trio.abc.HalfCloseableStream):
    """Trio's TLS stream, with a sending half that can be closed.

    TLS itself has no half-close that all servers support. All of them notice the end of the TCP
    stream, and what they sent before still arrives.
    """

    def __init__(
        self, stream: trio.abc.HalfCloseableStream, context: ssl.SSLContext, name: str
    ) -> None:
        self._plain = stream
        # Like HTTP servers, Redis ends connections without closing the TLS session.
        self._secure = trio.SSLStream(stream, context, server_hostname=name, https_compatible=True)

    async def shake_hands(self) -> None:
        """Do the TLS handshake. Raises OSError."""
        try:
            await self._secure.do_handshake()
        except trio.BrokenResourceError as error:
            if isinstance(error.__cause__, ssl.SSLError):
                raise error.__cause__ from None
            raise ConnectionResetError("the server hung up during the TLS handshake") from error

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._secure.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._secure.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        await self._plain.send_eof()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self._secure.receive_some(max_bytes)

    async def aclose(self) -> None:
        await self._secure.aclose()
