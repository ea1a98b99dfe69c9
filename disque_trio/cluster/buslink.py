"""One connection of the cluster bus, as bytes: plain or protected by TLS, a seal, keys of nodes.

Owns the socket and its buffers; ``bus`` decides when to read and write. A TLS socket has its own
exceptions for "would block", and returns one record at a time.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Callable

from disque_trio.cluster.links import Link
from disque_trio.cluster.tls import BusTls
from disque_trio.protocol.identity import Handshake, IdentityError
from disque_trio.protocol.packet_parser import PacketParser
from disque_trio.protocol.seal import Records, Seal, SealError

# Bytes per turn. Larger buffers would not come from the heap, but be mapped again for each read.
READ_SIZE = 64 * 1024
BROKEN = -1
_RECORD = 16 * 1024  # the largest TLS record

_READ = select.EPOLLIN
_WRITE = select.EPOLLOUT


class BusLink(Link):
    """A connection to another node.

    Args:
        dirty: links with packets of this turn.
        drop: closes a link, even if it is closed already.

    Attributes:
        fd: of the socket; -1: there is none.
        connected: the TCP connection exists; it is ``up`` once TLS is too, and the other side has
            shown that it knows the secret, and who it is.
        address: ip and port that it goes to; of an incoming link, nothing.
        closed: it is closed.
        given_up: the membership closed it.
        heard: a packet has arrived.
        half: the last packet is incomplete.
        queue: packets of this turn.
        unsent: what the socket did not take.
        largest: size of the largest piece in ``unsent``, in bytes.
        seal: of the common secret, or None.
        handshake: shows who the two nodes are, or None.
        introducing: that has begun: TLS and secret are in order, if there are any.
        records: protects what is sent and received, or None.
        early: data that came with the end of the handshake; the next ``receive`` returns it.
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
        self.parser = PacketParser()  # replaced once the connection exists
        self.queue: list[bytes] = []
        self.unsent = bytearray()
        self.largest = 0
        self._dirty = dirty
        self._drop = drop
        self.address = ("", 0)
        self.seal: Seal | None = None
        self.handshake: Handshake | None = None
        self.records: Records | None = None
        self.introducing = False
        self.early = b""
        self._tls: ssl.SSLSocket | None = None
        self._encrypted = False  # the TLS handshake is done
        self._bare = True  # it has neither TLS nor records

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
        """Use ``sock``, which is non-blocking."""
        self.sock = sock
        self.fd = sock.fileno()

    def secure(self, tls: BusTls | None, seal: Seal | None, handshake: Handshake | None) -> None:
        """Begin to protect the connection by those of the three that are given; with none it is
        ``up``. Raises ``OSError``."""
        self.records = self.seal = seal
        self.handshake = handshake
        self._bare = self.up = tls is None and seal is None and handshake is None
        if tls is None:
            return
        context = tls.client if self.outgoing else tls.server
        self._tls = context.wrap_socket(
            self.sock, server_side=not self.outgoing, do_handshake_on_connect=False
        )
        self.sock = self._tls

    def shake_hands(self) -> int:
        """Continue the handshakes as far as possible now; when they are done, the link is ``up``.

        Returns the events to wait for.

        Raises:
            OSError: there is no TLS with the other side.
            SealError: the other side does not know the secret, or says that this one does not; or
                it is none of the nodes that may talk to this one.
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
            if not self._say(seal.greeting):
                raise SealError(seal.ended)
            seal.greeting = b""
            data = self._read_raw()
            if data is None:
                return _READ
            if not data:
                raise SealError(seal.ended)
            self.early = seal.open(data)
            if not self._say(seal.answer()):
                raise SealError(seal.ended)
            if not seal.ready:
                return _READ
        if self.handshake is not None and not self._introduce(self.handshake):
            return _READ
        self.up = True
        return _READ

    def _introduce(self, handshake: Handshake) -> bool:
        """Continue the ``handshake`` of the nodes. Returns whether it is done. Raises
        ``SealError``."""
        if not self.introducing:
            self.introducing = True
            seal = self.seal
            if self.early:
                raise IdentityError("it shows no identity, but this node has cluster-identity")
            if not self._say(handshake.begin(b"" if seal is None else seal.binding())):
                raise IdentityError(handshake.ended)
        while not handshake.ready:
            data = self._read_raw()
            if data is None:
                return False
            if not data or not self._say(handshake.receive(data)):
                raise IdentityError(handshake.ended)
        self.peer = handshake.peer
        self.key = handshake.key
        if not handshake.plain:
            self.records = handshake.records
        rest, handshake.rest = handshake.rest, b""
        self.early = rest if self.records is None or not rest else self.records.open(rest)
        return True

    def _read_raw(self) -> bytes | None:
        """Return the next bytes of the peer's handshake; None: none yet; b"": it has ended."""
        try:
            return self._receive()
        except OSError:
            return b""

    def _say(self, data: bytes) -> bool:
        """Send ``data``, a part of the handshake, to an empty socket. Returns whether that was
        possible."""
        return not data or self.write(data) == len(data)

    def receive(self) -> bytes | None:
        """Return what has arrived. None: nothing that is complete; b"": the other side has closed.
        Raises ``OSError``, ``SealError``."""
        if self._bare:
            try:
                return self.sock.recv(READ_SIZE)
            except (BlockingIOError, InterruptedError):
                return None
        if self.early:
            data, self.early = self.early, b""
            return data
        received = self._receive()
        if received and self.records is not None:
            return self.records.open(received) or None
        return received

    def _receive(self) -> bytes | None:
        """Like ``receive``, but as it came over the connection."""
        try:
            if self._tls is None:
                return self.sock.recv(READ_SIZE)
            return self._receive_records(self._tls)
        except (BlockingIOError, InterruptedError):
            return None

    def _receive_records(self, tls: ssl.SSLSocket) -> bytes | None:
        """Like ``receive``, over TLS."""
        parts: list[bytes] = []
        size = 0
        # epoll does not see data that TLS has already decrypted, so leave none.
        while size < READ_SIZE or tls.pending():
            try:
                data = tls.recv(_RECORD)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            if not data:
                # The next call sees the end again.
                return b"".join(parts)
            parts.append(data)
            size += len(data)
        return b"".join(parts) if parts else None

    def write(self, data: bytes | memoryview) -> int:
        """Send as much of ``data`` as the socket takes; return the number of bytes, or BROKEN."""
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
