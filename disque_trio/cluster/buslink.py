"""One connection of the cluster bus, as bytes: plain, sealed, over TLS, or both.

Owns the socket and what is on its way; when it is read and written is the ``bus``'s. A TLS socket
says that it would have to wait with exceptions of its own, and gives one record at a time.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Callable

from disque_trio.cluster.links import Link
from disque_trio.cluster.tls import BusTls
from disque_trio.protocol.packet_parser import PacketParser
from disque_trio.protocol.seal import Seal, SealError

# Bytes a turn. More would not come from the heap: the memory would be mapped anew for each read.
READ_SIZE = 64 * 1024
BROKEN = -1
_RECORD = 16 * 1024  # the most that TLS gives at a time

_READ = select.EPOLLIN
_WRITE = select.EPOLLOUT


class BusLink(Link):
    """A connection to another node.

    Args:
        dirty: links with packets of this turn.
        drop: closes a link, which may be closed.

    Attributes:
        fd: of the socket, -1: there is none.
        connected: the TCP connection is there; it is ``up`` when TLS is, too, and the other side
            has shown that it knows the secret.
        closed: it is over.
        given_up: it was the membership that closed it.
        heard: a packet came.
        half: a part of one came, the rest of which did not.
        queue: packets of this turn.
        unsent: what the socket did not take.
        largest: bytes of the largest piece in ``unsent``.
        seal: of what is sent and received, or None.
        early: came with the end of the handshake; the next ``receive`` gives it.
    """

    def __init__(
        self, outgoing: bool, dirty: list[BusLink], drop: Callable[[BusLink], None]
    ) -> None:
        super().__init__(outgoing)
        self.sock: socket.socket
        self.fd = -1
        self.connected = False
        self.closed = False
        self.given_up = False
        self.heard = False
        self.half = False
        self.parser = PacketParser()  # until the connection is there
        self.queue: list[bytes] = []
        self.unsent = bytearray()
        self.largest = 0
        self._dirty = dirty
        self._drop = drop
        self.seal: Seal | None = None
        self.early = b""
        self._tls: ssl.SSLSocket | None = None
        self._encrypted = False  # the TLS handshake is done
        self._bare = True  # neither TLS nor seal

    def send(self, packet: bytes) -> None:
        if self.up:
            queue = self.queue
            if not queue:
                self._dirty.append(self)
            queue.append(packet)

    def behind(self) -> bool:
        return len(self.unsent) > 0

    def close(self) -> None:
        self.given_up = True
        self._drop(self)

    def take(self, sock: socket.socket) -> None:
        """Use ``sock``, which does not block."""
        self.sock = sock
        self.fd = sock.fileno()

    def secure(self, tls: BusTls | None, seal: Seal | None) -> None:
        """Begin to protect the connection by what there is of these; without any it is ``up``.
        Raises OSError."""
        self.seal = seal
        self._bare = self.up = tls is None and seal is None
        if tls is None:
            return
        context = tls.client if self.outgoing else tls.server
        self._tls = context.wrap_socket(
            self.sock, server_side=not self.outgoing, do_handshake_on_connect=False
        )
        self.sock = self._tls

    def shake_hands(self) -> int:
        """Go on with the handshakes as far as possible now; when they are done it is ``up``.

        Returns the events to wait for.

        Raises:
            OSError: there is no TLS with the other side.
            SealError: it does not know the secret, or says that this side does not.
        """
        tls, seal = self._tls, self.seal
        if tls is not None and not self._encrypted:
            try:
                tls.do_handshake()
            except ssl.SSLWantReadError:
                return _READ
            except ssl.SSLWantWriteError:
                return _WRITE
            self._encrypted = True
        if seal is not None and not seal.ready:
            self._say(seal, seal.greeting)
            seal.greeting = b""
            data = self._read_raw(seal)
            if data is None:
                return _READ
            self.early = seal.open(data)
            self._say(seal, seal.answer())
            if not seal.ready:
                return _READ
        self.up = True
        return _READ

    def _read_raw(self, seal: Seal) -> bytes | None:
        """What has come of the other side's handshake; None: nothing. Raises SealError."""
        try:
            data = self._receive()
        except OSError:
            data = b""
        if data == b"":
            raise SealError(seal.ended)
        return data

    def _say(self, seal: Seal, data: bytes) -> None:
        """Send ``data``, a part of the handshake, to an empty socket. Raises SealError."""
        if data and self.write(data) != len(data):
            raise SealError(seal.ended)

    def receive(self) -> bytes | None:
        """What has come; None: nothing that is complete, b"": the other side has closed. Raises
        OSError, SealError."""
        if self._bare:
            try:
                return self.sock.recv(READ_SIZE)
            except (BlockingIOError, InterruptedError):
                return None
        if self.early:
            data, self.early = self.early, b""
            return data
        received = self._receive()
        if received and self.seal is not None:
            return self.seal.open(received) or None
        return received

    def _receive(self) -> bytes | None:
        """As ``receive``, before it is opened."""
        try:
            if self._tls is None:
                return self.sock.recv(READ_SIZE)
            return self._receive_records(self._tls)
        except (BlockingIOError, InterruptedError):
            return None

    def _receive_records(self, tls: ssl.SSLSocket) -> bytes | None:
        """As ``receive``, over TLS."""
        parts: list[bytes] = []
        size = 0
        # What TLS holds decrypted, epoll does not know of: it must not be left there.
        while size < READ_SIZE or tls.pending():
            try:
                data = tls.recv(_RECORD)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            if not data:
                # The end comes again with the next call.
                return b"".join(parts)
            parts.append(data)
            size += len(data)
        return b"".join(parts) if parts else None

    def write(self, data: bytes | memoryview) -> int:
        """Send ``data`` as far as the socket takes it now; returns how many bytes, or BROKEN."""
        sent = 0
        try:
            if self._tls is None:
                return self.sock.send(data)
            with memoryview(data) as rest:
                while sent < len(rest):
                    sent += self._tls.send(rest[sent:])
        except (BlockingIOError, InterruptedError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            pass
        except OSError:
            return BROKEN
        return sent
