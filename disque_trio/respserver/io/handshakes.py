"""Performs TLS handshakes with connections that are to become clients.

Until that is done, they are strangers: they do not count as clients, so that connections that never
finish cannot keep clients out; and their number and time are limited.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Callable
from typing import Final, TypeAlias

from disque_trio.process.logs import Log
from disque_trio.resp.request import TLS_HANDSHAKE
from disque_trio.respserver.io.beside import Beside
from disque_trio.respserver.io.lingering import Lingering
from disque_trio.respserver.io.poller import READ, WRITE
from disque_trio.respserver.io.sealing import Sealing
from disque_trio.respserver.io.sparse_log import SparseLog
from disque_trio.respserver.io.stats import Stats
from disque_trio.respserver.origins import Origins

MOST: Final = 256  # handshakes at a time; beyond it, the oldest one is dropped
PATIENCE: Final = 10_000  # ms that one may take
MOST_LINES: Final = 5  # log lines in LINES_SECONDS
LINES_SECONDS: Final = 60
_READ_SIZE: Final = 16 * 1024
_NO_TLS: Final = b"-ERR this port is for TLS only\r\n"

Admit: TypeAlias = Callable[[Sealing], None]


class Handshake(Beside):
    """A connection whose handshake is not finished.

    Attributes:
        address: where it comes from, for the log.
        until: when its time is over, in ms.
        admit: called when it is finished.
    """

    __slots__ = ("_all", "_done", "_sealing", "_unsent", "address", "admit", "sock", "until")

    def __init__(
        self, all: Handshakes, sock: socket.socket, address: str, until: int, admit: Admit
    ) -> None:
        self._all = all
        self.sock = sock
        self.address = address
        self.until = until
        self.admit = admit
        self._sealing: Sealing | None = None  # until data arrives: it takes a lot of memory
        self._unsent = b""
        self._done = False

    def ready(self, mask: int, now: int) -> None:
        try:
            if mask & ~WRITE and not self._done:
                self._read(now)
            elif self._unsent:
                self._write(b"")
        except OSError as problem:
            self._all.failed(self, _reason(problem), now)
            return
        # The client need not read our last message before it sends its first request.
        sealing = self._sealing
        if self._done and not self._unsent and sealing is not None:
            self._all.remove(self)
            self.admit(sealing)

    def _read(self, now: int) -> None:
        """Continue with the data that arrived. Raises ``OSError``: the connection is lost, or
        refused."""
        try:
            data = self.sock.recv(_READ_SIZE)
        except (BlockingIOError, InterruptedError):
            return
        if not data:
            raise ConnectionError("the client closed the connection")
        sealing = self._sealing
        if sealing is None:
            context = self._all.context
            if data[0] != TLS_HANDSHAKE or context is None:
                self._all.refuse(self, now)
                return
            sealing = self._sealing = Sealing(context)
        try:
            self._done = sealing.shake_hands(data)
        except ssl.SSLError:
            self._write(sealing.take_out())  # tells the client why
            raise
        self._write(sealing.take_out())

    def _write(self, data: bytes) -> None:
        """Send as much of what is unsent and ``data`` as possible. Raises ``OSError``."""
        data = self._unsent + data
        if not data:
            return
        waited = len(self._unsent) > 0
        try:
            sent = self.sock.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        self._unsent = data[sent:]
        if self._unsent or waited:
            self._all.watch(self, (0 if self._done else READ) | (WRITE if self._unsent else 0))


class Handshakes:
    """All handshakes of a server.

    Args:
        epoll: reports their events.
        beside: where the engine finds them, by file descriptor.
        lingering: closes those that do not speak TLS.

    Attributes:
        context: the certificates for connections that come from now on; None: there is no TLS.
        origins: counts where they come from, if they ``enter``, until they end.
    """

    def __init__(
        self,
        epoll: select.epoll,
        beside: dict[int, Beside],
        lingering: Lingering,
        stats: Stats,
        log: Log,
    ) -> None:
        self.context: ssl.SSLContext | None = None
        self.origins = Origins()
        self._epoll = epoll
        self._beside = beside
        self._lingering = lingering
        self._stats = stats
        self._log = SparseLog(log, MOST_LINES, LINES_SECONDS)
        self._all: dict[Handshake, None] = {}  # the oldest first

    def __len__(self) -> int:
        return len(self._all)

    def begin(self, sock: socket.socket, address: str, now: int, admit: Admit) -> None:
        """Perform a handshake with the client at the other end of ``sock``, and call ``admit`` when
        it is finished. If it fails, the socket is closed. Raises ``OSError`` if it is gone
        already."""
        if len(self._all) == MOST:
            self.failed(next(iter(self._all)), "too many handshakes at a time", now)
        self._epoll.register(sock.fileno(), READ)
        handshake = Handshake(self, sock, address, now + PATIENCE, admit)
        self._all[handshake] = None
        self._beside[sock.fileno()] = handshake

    def watch(self, handshake: Handshake, mask: int) -> None:
        """Wait for the events ``mask`` for ``handshake``."""
        self._epoll.modify(handshake.sock.fileno(), mask)

    def remove(self, handshake: Handshake) -> None:
        """Stop watching ``handshake``; its socket stays open."""
        del self._all[handshake]
        del self._beside[handshake.sock.fileno()]
        self.origins.leave(handshake.sock.fileno())
        self._epoll.unregister(handshake.sock.fileno())

    def failed(self, handshake: Handshake, reason: str, now: int) -> None:
        """Close ``handshake``, which failed for ``reason``."""
        self._stats.tls_handshakes_failed += 1
        self._log.warning(now, "TLS handshake failed", client=handshake.address, reason=reason)
        self.remove(handshake)
        handshake.sock.close()

    def refuse(self, handshake: Handshake, now: int) -> None:
        """Close ``handshake``, whose client does not speak TLS."""
        self._stats.tls_handshakes_failed += 1
        self._log.warning(
            now,
            "a client without TLS connected to tls-port: it has to use TLS, or the other port",
            client=handshake.address,
        )
        self.remove(handshake)
        try:
            handshake.sock.send(_NO_TLS)
        except OSError:
            pass
        self._lingering.add(handshake.sock, now)

    def astray(self, address: str, now: int) -> None:
        """Log that a TLS client connected to a port without TLS, and was told so."""
        self._log.warning(
            now,
            "a TLS client connected to a port without TLS: it has to use tls-port",
            client=address,
        )

    def expire(self, now: int) -> None:
        """Close those that took too long. Call it now and then."""
        for handshake in list(self._all):
            if now <= handshake.until:
                return
            self.failed(handshake, f"it took more than {PATIENCE // 1000} seconds", now)

    def close_all(self) -> None:
        """Close them all."""
        for handshake in list(self._all):
            self.remove(handshake)
            handshake.sock.close()


def _reason(problem: OSError) -> str:
    """Return why a handshake failed, in OpenSSL's words if it says."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        return f"the client's certificate is not valid: {problem.verify_message}"
    if isinstance(problem, ssl.SSLError) and problem.reason:
        return problem.reason.lower().replace("_", " ")
    return problem.strerror or str(problem)
