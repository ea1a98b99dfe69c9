"""The TLS connection of a client."""

from __future__ import annotations

import socket
import ssl

from disque_trio.resp.plain import cut_plain
from disque_trio.resp.request import RequestParser
from disque_trio.respserver.client import PIECE, Client
from disque_trio.respserver.io import sockets
from disque_trio.respserver.io.connection import Connection
from disque_trio.respserver.io.sealing import Sealing
from disque_trio.respserver.io.unsent import Unsent


class TlsConnection(Connection):
    """Like ``Connection``, but what is on the socket is encrypted. What is ``unsent`` is encrypted
    when its turn comes: all of a long reply at once would keep others waiting.

    Args:
        sealing: has finished its handshake. May contain requests that came with its end, so call
            ``receive`` at once.
    """

    __slots__ = ("_sealing",)

    def __init__(
        self,
        sock: socket.socket,
        client: Client,
        parser: RequestParser,
        address: str,
        now: int,
        sealing: Sealing,
    ) -> None:
        super().__init__(sock, client, parser, address, False, now)
        self._sealing = sealing
        self.unsent = Unsent(sealing.encrypt)

    @property
    def tls(self) -> bool:
        return True

    @property
    def held(self) -> int:
        return super().held + self._sealing.half

    def receive(self, requests: list[list[bytes]]) -> int:
        sealing = self._sealing
        if sealing.ended:
            return 0
        try:
            data = self.read_some()
        except BlockingIOError:
            if not sealing.unread:
                raise
            data = b""
        if not (data or sealing.unread):
            return 0  # closed without a TLS message, which is just as good once it is over
        was_half = sealing.half
        plain = sealing.decrypt(data)
        parser = self.parser
        if sealing.ended:
            # The client may leave the connection open, and wait for its replies. After this the end
            # is seen again, as if it had been closed.
            try:
                self.sock.shutdown(socket.SHUT_RD)
            except OSError:
                pass
            if not plain:
                return 0
        if was_half or sealing.half:
            parser.resized = True
        if plain:
            if parser.takes_plain:
                after = cut_plain(plain, 0, parser.max_bulk, requests)
                if after < len(plain):
                    parser.take(plain[after:], requests)
            else:
                parser.take(plain, requests)
        return len(data) or len(plain) or 1

    def send(self, data: bytes) -> bool:
        if self.unsent:
            self.unsent.line_up([data])
            return True
        if len(data) > PIECE:
            return self.send_long([data])
        try:
            return super().send(self._sealing.encrypt(data))
        except ssl.SSLError:
            return False

    def say_end(self) -> None:
        if self.unsent:
            return  # an incomplete record cannot be ended
        try:
            sockets.send(self.fd, self._sealing.end())
        except OSError:
            pass
