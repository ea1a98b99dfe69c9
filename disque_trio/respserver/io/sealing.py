"""TLS of one connection, as bytes in and bytes out: OpenSSL on memory, without a socket.

Input is decrypted at once and completely, so that epoll knows of everything that a client sent,
except for the beginning of a record whose end has not arrived.
"""

from __future__ import annotations

import ssl
from typing import Final

# The maximum of a record; OpenSSL writes one at a time.
RECORD: Final = 16 * 1024  # bytes
_MOST_HALF: Final = RECORD + 2048  # bytes, including everything that encryption adds


class Sealing:
    """Encrypts and decrypts for one connection.

    Args:
        context: the certificates.

    Attributes:
        ended: the client said that it will send nothing more.
        half: received bytes of an incomplete record; limited.
    """

    __slots__ = ("_into", "_out", "_tls", "ended", "half")

    def __init__(self, context: ssl.SSLContext) -> None:
        self._into = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._into, self._out, server_side=True)
        self.ended = False
        self.half = 0

    def shake_hands(self, data: bytes) -> bool:
        """Process ``data`` of the handshake; return whether it is finished. In any case there may
        be data to send: see ``take_out``. Raises ``ssl.SSLError``: the client is refused, or
        refuses."""
        self._into.write(data)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def take_out(self) -> bytes:
        """Return what has to be sent in addition to encrypted data."""
        return self._out.read() if self._out.pending else b""

    @property
    def unread(self) -> bool:
        """Whether received data, as at the end of the handshake, was not decrypted yet."""
        return self._into.pending > 0

    def decrypt(self, data: bytes) -> bytes:
        """Decrypt ``data``. Raises ``ssl.SSLError``: it is not what the client sent, or it ends the
        connection."""
        into = self._into
        tls = self._tls
        if data:
            into.write(data)
        plain = self._read()
        # Nearly always it is one record, and asking for another costs more than checking.
        if not (into.pending or tls.pending()):
            return plain
        parts = [plain]
        while (into.pending or tls.pending()) and not self.ended:
            parts.append(self._read())
        return b"".join(parts)

    def _read(self) -> bytes:
        """The next record, if it is complete."""
        left = self._into.pending
        try:
            plain = self._tls.read(RECORD)
        except ssl.SSLWantReadError:
            self.half = min(self.half + left, _MOST_HALF)
            return b""
        except ssl.SSLZeroReturnError:
            plain = b""
        self.half = 0
        if not plain:
            self.ended = True
        return plain

    def encrypt(self, data: bytes | memoryview) -> bytes:
        """Return the encrypted ``data``, and anything else that has to be sent."""
        write = self._tls.write
        size = len(data)
        if size <= RECORD:
            if size:
                write(data)
            return self._out.read()
        with memoryview(data) as rest:
            done = 0
            while done < size:
                done += write(rest[done : done + RECORD])
        return self._out.read()

    def end(self) -> bytes:
        """Say that nothing more will come from this side; return what has to be sent."""
        try:
            self._tls.unwrap()
        except (ssl.SSLError, ValueError):
            pass  # the client has not said so yet, or never spoke TLS
        return self.take_out()
