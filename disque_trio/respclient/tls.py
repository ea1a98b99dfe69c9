"""TLS to a server: whom to trust, which certificate to show, and why a handshake failed.

Owns certificate files and what is made of them. Does not need Trio, so that blocking clients can
use it.
"""

import argparse
import re
import socket
import ssl
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, TypeAlias


@dataclass(frozen=True, slots=True)
class Tls:
    """How to verify a server's certificate, and which certificate to show.

    Attributes:
        ca_file: certificates of the authorities to trust (PEM); None, and no ``ca_dir``: those of
            the system.
        cert_file: our certificate (PEM), for servers that require one.
        key_file: the key of our certificate, if it is not in the same file.
        check_hostname: the certificate must be valid for the host that is connected to. Otherwise
            any certificate signed by a trusted authority will do.
        server_name: the name to request (SNI) and to look for in the certificate, in place of the
            host: nodes are often reached by addresses that are in no certificate.
        ca_dir: a directory of trusted certificates, as made by ``openssl rehash``.
        verify: False trusts any certificate, which is only good for tests.
    """

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    check_hostname: bool = True
    server_name: str | None = None
    ca_dir: str | None = None
    verify: bool = True

    def context(self) -> ssl.SSLContext:
        """Make an SSL context.

        Raises:
            ValueError: a file cannot be used; the text names it and the reason.
        """
        if self.key_file is not None and self.cert_file is None:
            raise ValueError("TLS: a key needs its certificate")
        if self.ca_dir is not None and not Path(self.ca_dir).is_dir():
            raise ValueError(f"TLS: authorities {self.ca_dir}: no such directory")
        try:
            context = ssl.create_default_context(cafile=self.ca_file, capath=self.ca_dir)
        except OSError as error:
            raise ValueError(f"TLS: authorities {self.ca_file}: {_said(error)}") from error
        context.check_hostname = self.check_hostname and self.verify
        if not self.verify:
            context.verify_mode = ssl.CERT_NONE
        if self.cert_file is not None:
            try:
                # Without a function, OpenSSL would ask for a password at the terminal.
                context.load_cert_chain(self.cert_file, self.key_file, password=_locked)
            except (OSError, ValueError) as error:
                files = " and ".join(filter(None, (self.cert_file, self.key_file)))
                raise ValueError(f"TLS: certificate and key {files}: {_said(error)}") from error
        return context

    @property
    def files(self) -> tuple[str, ...]:
        """The files and directories that ``context`` reads."""
        return tuple(filter(None, (self.ca_file, self.cert_file, self.key_file, self.ca_dir)))


def of_arguments(options: argparse.Namespace, wanted: bool) -> Tls | None:
    """Return the TLS settings on a command line, from ``process.options.add_login_options``; None
    unless they are ``wanted``.

    Raises:
        ValueError: there are some, but they are not wanted.
    """
    tls = Tls(
        ca_file=options.cacert,
        cert_file=options.cert,
        key_file=options.key,
        server_name=options.sni,
        verify=not options.insecure,
    )
    if not wanted and tls != Tls():
        raise ValueError("--cacert, --cert, --key, --sni and --insecure need --tls")
    return tls if wanted else None


TlsOption: TypeAlias = "Tls | ssl.SSLContext | bool | None"
"""Values for ``tls`` arguments. True: trust the system's authorities. None, False: no TLS."""


def _locked() -> str:
    raise ValueError("the key is protected by a password")


def _said(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


class Encryption:
    """Encrypts connections.

    If one of its files has changed, it is read again for the next connection, since certificates
    are renewed while programs run. If a file then cannot be used, the old ones remain in use.

    Raises:
        ValueError: as for ``Tls.context``.
    """

    def __init__(self, tls: Tls | ssl.SSLContext) -> None:
        self._tls = tls if isinstance(tls, Tls) else None
        self._stamps = self._now()
        self._context = tls.context() if isinstance(tls, Tls) else tls

    @staticmethod
    def of(tls: TlsOption) -> "Encryption | None":
        """Return the encryption for ``tls``; None: no TLS. Raises ValueError as ``Tls.context``."""
        if tls is None or tls is False:
            return None
        return _shared(Tls() if tls is True else tls)

    def context(self) -> ssl.SSLContext:
        """Return the SSL context for the next connection."""
        if self._tls is not None and (stamps := self._now()) != self._stamps:
            try:
                self._context = self._tls.context()
            except ValueError:
                return self._context  # the file may be half written
            self._stamps = stamps
        return self._context

    def name(self, host: str) -> str:
        """Return the name that the certificate of the server at ``host`` must have."""
        given = self._tls.server_name if self._tls is not None else None
        return given or host.partition("%")[0]  # without the zone of an IPv6 address

    def wrap(self, connected: socket.socket, host: str) -> ssl.SSLSocket:
        """Encrypt a blocking socket, within its timeout. Closes it if that fails.

        Raises:
            OSError: see ``refusal``.
        """
        try:
            return self.context().wrap_socket(connected, server_hostname=self.name(host))
        except BaseException:
            connected.close()
            raise

    def _now(self) -> list[tuple[int, int]]:
        return [_stamp(file) for file in self._tls.files] if self._tls is not None else []


@lru_cache(maxsize=64)
def _shared(tls: Tls | ssl.SSLContext) -> Encryption:
    # Reading the system's authorities takes longer than a handshake.
    return Encryption(tls)


def _stamp(file: str) -> tuple[int, int]:
    try:
        found = Path(file).stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_ino


_ALERT: Final = re.compile(r"ALERT_(\w+)")
_OF_OURS: Final = {
    "CERTIFICATE_REQUIRED": "the server requires a certificate from us",
    "UNKNOWN_CA": "the server does not trust our certificate",
    "CERTIFICATE_EXPIRED": "our certificate has expired",
    "CERTIFICATE_REVOKED": "our certificate was revoked",
    "BAD_CERTIFICATE": "the server does not accept our certificate",
    "CERTIFICATE_UNKNOWN": "the server does not accept our certificate",
    "UNSUPPORTED_CERTIFICATE": "the server does not accept our certificate",
    "ACCESS_DENIED": "the server does not accept our certificate",
    "DECRYPT_ERROR": "the server does not accept our certificate",
    "HANDSHAKE_FAILURE": "no cipher in common, or the server requires a certificate from us",
    "INSUFFICIENT_SECURITY": "no cipher in common",
    "PROTOCOL_VERSION": "no TLS version in common",
    "UNRECOGNIZED_NAME": "the server does not know the requested name",
}
_OF_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG")
_NO_COMMON: Final = {
    "UNSUPPORTED_PROTOCOL": "no TLS version in common",
    "NO_PROTOCOLS_AVAILABLE": "no TLS version in common",
}


def refusal(error: BaseException) -> str | None:
    """Describe why a handshake failed, if another one would fail too until somebody fixes the
    cause. None for other errors, such as a broken connection. Looks at the causes of ``error``."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, ssl.SSLCertVerificationError):
            return f"certificate verify failed: {found.verify_message.rstrip('.')}"
        if isinstance(found, ssl.SSLError) and (text := _refusal(_reason(found))):
            return text
        found = found.__cause__
    return None


def _reason(error: ssl.SSLError) -> str:
    # An error that was not raised by OpenSSL has no reason.
    return getattr(error, "reason", None) or ""


def _refusal(reason: str) -> str | None:
    if alert := _ALERT.search(reason):
        return _OF_OURS.get(alert[1])
    if reason in _OF_NO_TLS:
        return "the server does not speak TLS on this port"
    return _NO_COMMON.get(reason)


def is_alert(data: bytes | bytearray) -> bool:
    """Return whether ``data`` is what a TLS server sends to a client without TLS."""
    return data[:2] == b"\x15\x03"
