"""TLS for the cluster bus: loads certificates and checks those of other nodes.

Nodes are known by their addresses, which change, so no name in a certificate is looked at: what
counts is that the authority of the cluster signed it.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from disque_trio.config import Config


class TlsError(Exception):
    """The certificates cannot be used; the text says which and why."""


@dataclass(frozen=True)
class BusTls:
    """The TLS contexts for links opened by other nodes (server) and by this one (client)."""

    server: ssl.SSLContext
    client: ssl.SSLContext


def bus_tls(config: Config) -> BusTls | None:
    """Read the certificates; None when the bus is not encrypted.

    Raises:
        TlsError: one is missing or no good.
    """
    if not config.tls_cluster:
        return None
    for name in ("tls-cert-file", "tls-key-file", "tls-ca-cert-file"):
        if not config.get(name):
            raise TlsError(f"tls-cluster is yes, it needs {name}")
    return BusTls(
        _context(ssl.PROTOCOL_TLS_SERVER, config), _context(ssl.PROTOCOL_TLS_CLIENT, config)
    )


def _context(protocol: int, config: Config) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        # A key with a password would have OpenSSL ask for it on the terminal.
        context.load_cert_chain(config.tls_cert_file, config.tls_key_file, password="")
    except (OSError, ValueError) as problem:
        raise TlsError(
            f"tls-cert-file {config.tls_cert_file}, tls-key-file {config.tls_key_file}: {problem}"
        ) from problem
    try:
        context.load_verify_locations(config.tls_ca_cert_file)
    except (OSError, ValueError) as problem:
        raise TlsError(f"tls-ca-cert-file {config.tls_ca_cert_file}: {problem}") from problem
    return context
