"""TLS servers and clients, with certificates from ``certificates``."""

import select
import shutil
import socket
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tests.support.certificates import make_authority, make_certificates, sign
from tests.support.harness import HANG_SECONDS, Wire

HOST = "127.0.0.1"
_CHUNK: Final = 64 * 1024  # bytes to send or receive at a time


def all_certificates(directory: Path) -> Path:
    """Make certificates of two CAs, ours and foreign: a server ``ours``, and clients ``client``,
    ``expired`` and ``foreign``; ``next`` is also for the server."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make certificates with")
    make_certificates(directory, "foreign")
    make_authority(directory, "ours")
    for name in ("ours", "next", "client"):
        sign(directory, "ours", name)
    sign(directory, "ours", "expired", expired=True)
    return directory


def tls_options(certificates: Path, port: int, auth: str = "yes", own: str = "ours") -> list[str]:
    """The options of a server that listens for TLS on ``port``."""
    return [
        "--tls-port", str(port),
        "--tls-cert-file", str(certificates / f"{own}.pem"),
        "--tls-key-file", str(certificates / f"{own}.key"),
        "--tls-ca-cert-file", str(certificates / "ours-ca.pem"),
        "--tls-auth-clients", auth,
    ]  # fmt: skip


def client_context(certificates: Path, own: str | None = "client") -> ssl.SSLContext:
    """The context for a client with the certificate ``own``, or none."""
    context = ssl.create_default_context(cafile=str(certificates / "ours-ca.pem"))
    if own is not None:
        context.load_cert_chain(certificates / f"{own}.pem", certificates / f"{own}.key")
    return context


class TlsWire(Wire):
    """A TLS connection. Raises OSError if the handshake fails on the client's side; with TLS 1.3
    that may happen later."""

    sock: ssl.SSLSocket

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        sock = socket.create_connection((HOST, port), HANG_SECONDS)
        try:
            super().__init__(context.wrap_socket(sock, server_hostname=HOST))
        except BaseException:
            sock.close()
            raise

    @property
    def certificate(self) -> bytes | None:
        """The server's certificate."""
        return self.sock.getpeercert(True)

    def converse(self, data: bytes, replies: int) -> list[object]:
        """Send ``data`` and read ``replies`` replies at the same time, in one thread: OpenSSL does
        not let two share a connection. Raises EOFError if the node closed it."""
        found: list[object] = []
        self.sock.setblocking(False)
        try:
            with memoryview(data) as rest:
                sent = 0
                while len(found) < replies:
                    waits_for = []
                    if sent < len(data):
                        waits_for = [self.sock]
                        with suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
                            sent += self.sock.send(rest[sent : sent + _CHUNK])
                    if not self._receive(found):
                        assert any(select.select([self.sock], waits_for, [], HANG_SECONDS)), "hangs"
        finally:
            self.sock.settimeout(HANG_SECONDS)
        return found

    def _receive(self, found: list[object]) -> bool:
        """Append the replies that are there to ``found``; return whether anything came."""
        try:
            received = self.sock.recv(_CHUNK)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        if not received:
            raise EOFError("the node closed the connection")
        self._reader.feed(received)
        while (reply := self._reader.gets()) is not False:
            found.append(reply)
        return True
