"""TLS contexts of a server: reads certificates, and decides which peers they admit.

Translates the settings ``tls-*`` for OpenSSL. The port for clients and the cluster bus use the same
certificates.
"""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import Protocol

from disque_trio.process.certificates import CertificateError, validity


class TlsError(Exception):
    """The certificates cannot be used; the text says which and why."""


class TlsSettings(Protocol):
    """The settings that concern TLS."""

    tls_port: int
    tls_cert_file: str
    tls_key_file: str
    tls_key_file_pass: str
    tls_ca_cert_file: str
    tls_ca_cert_dir: str
    tls_auth_clients: str
    tls_protocols: tuple[str, ...]
    tls_ciphers: str
    tls_ciphersuites: str
    tls_prefer_server_ciphers: bool
    tls_session_caching: bool

    @property
    def tls_cluster(self) -> bool: ...


def for_clients(settings: TlsSettings) -> ssl.SSLContext | None:
    """Read the certificates of the TLS port for clients; None if there is no such port.

    Raises:
        TlsError: a certificate is missing or unusable.
    """
    if not settings.tls_port:
        return None
    return server_context(settings, settings.tls_auth_clients, "tls-port is set")


def server_context(settings: TlsSettings, auth: str, reason: str) -> ssl.SSLContext:
    """Return a context for connections that others open.

    Args:
        auth: whether they have to show a valid certificate: no, optional (none is fine) or yes.
        reason: what certificates are needed for.

    Raises:
        TlsError: a certificate is missing or unusable, or another setting is wrong.
    """
    context = _context(ssl.PROTOCOL_TLS_SERVER, settings, auth, reason)
    context.options |= ssl.OP_NO_RENEGOTIATION
    if not settings.tls_prefer_server_ciphers:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    if not settings.tls_session_caching:
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
    return context


def client_context(settings: TlsSettings, reason: str) -> ssl.SSLContext:
    """Return a context for connections to servers whose certificates the same authority signed,
    whatever names they have. Raises ``TlsError`` like ``server_context``."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, settings, "yes", reason)


def _context(protocol: int, settings: TlsSettings, auth: str, reason: str) -> ssl.SSLContext:
    if not settings.tls_cert_file:
        raise TlsError(f"No tls-cert-file configured! ({reason})")
    if not settings.tls_key_file:
        raise TlsError(f"No tls-key-file configured! ({reason})")
    authorities = settings.tls_ca_cert_file or settings.tls_ca_cert_dir
    if auth != "no" and not authorities:
        raise TlsError(
            "Either tls-ca-cert-file or tls-ca-cert-dir must be specified when tls-cluster or "
            f"tls-auth-clients are enabled! ({reason})"
        )
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    verify = {"no": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "yes": ssl.CERT_REQUIRED}
    context.verify_mode = verify[auth]
    versions = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
    chosen = [versions[name] for name in settings.tls_protocols or versions]
    context.minimum_version, context.maximum_version = min(chosen), max(chosen)
    _load_own(context, settings)
    if authorities:
        _load_authorities(context, settings)
    _choose_ciphers(context, settings)
    return context


def _load_own(context: ssl.SSLContext, settings: TlsSettings) -> None:
    certificate, key = settings.tls_cert_file, settings.tls_key_file
    # With None, OpenSSL would ask for the password of an encrypted key on the terminal.
    password = settings.tls_key_file_pass.encode("utf-8", "surrogateescape")
    own = [("tls-cert-file", "certificate", certificate), ("tls-key-file", "private key", key)]
    for setting, what, name in own:
        try:
            Path(name).open("rb").close()
        except (OSError, ValueError) as problem:
            raise TlsError(
                f"Failed to load {what}: {setting} {name}: {_text(problem)}"
            ) from problem
    try:
        context.load_cert_chain(certificate, key, password)
    except (OSError, ValueError) as problem:
        raise TlsError(
            f"Failed to load tls-cert-file {certificate} with tls-key-file {key}: "
            f"{_why_not_loaded(problem, certificate, key)}"
        ) from problem


def _why_not_loaded(problem: Exception, certificate: str, key: str) -> str:
    """Return why ``certificate`` and ``key``, which are readable, are unusable.

    OpenSSL often only says which part of it failed.
    """
    if "KEY_VALUES_MISMATCH" in str(problem):
        return "the key is not that of the certificate"
    if "BEGIN CERTIFICATE" not in Path(certificate).read_text("latin-1"):
        return "there is no certificate (PEM) in the first"
    text = Path(key).read_text("latin-1")
    if "PRIVATE KEY" not in text:
        return "there is no private key (PEM) in the second"
    if "ENCRYPTED" in text:
        return "the key is encrypted, and tls-key-file-pass does not open it"
    return _text(problem)


def _load_authorities(context: ssl.SSLContext, settings: TlsSettings) -> None:
    file, directory = settings.tls_ca_cert_file, settings.tls_ca_cert_dir
    try:
        if directory:
            os.scandir(directory).close()  # OpenSSL does not report a missing one
        context.load_verify_locations(file or None, directory or None)
    except (OSError, ValueError) as problem:
        raise TlsError(
            "Failed to configure CA certificate(s) file/directory: tls-ca-cert-file "
            f"{file or '(none)'}, tls-ca-cert-dir {directory or '(none)'}: {_text(problem)}"
        ) from problem


def _choose_ciphers(context: ssl.SSLContext, settings: TlsSettings) -> None:
    if settings.tls_ciphers:
        try:
            context.set_ciphers(settings.tls_ciphers)
        except (ssl.SSLError, ValueError) as problem:
            raise TlsError(f"Failed to configure ciphers: {settings.tls_ciphers}") from problem
    if settings.tls_ciphersuites:
        choose = getattr(context, "set_ciphersuites", None)
        if choose is None:
            raise TlsError(
                "Failed to configure ciphersuites: the ssl module of this Python cannot choose "
                "those of TLS 1.3, leave tls-ciphersuites empty"
            )
        try:
            choose(settings.tls_ciphersuites)
        except (ssl.SSLError, ValueError) as problem:
            raise TlsError(
                f"Failed to configure ciphersuites: {settings.tls_ciphersuites}"
            ) from problem


def _text(problem: Exception) -> str:
    return getattr(problem, "strerror", None) or str(problem)


def dates_of(file: str) -> tuple[float, float] | None:
    """The first and the last second (since the epoch) of the validity of the certificate in
    ``file``; None: there is none that can be read, which whoever loads it reports."""
    try:
        return validity(Path(file).read_text("ascii", "replace"))
    except (OSError, CertificateError):
        return None
