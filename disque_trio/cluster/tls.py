"""TLS for the cluster bus.

Nodes are known by their addresses, which change, so the names in certificates are ignored: what
counts is that the cluster's authority has signed them.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from disque_trio.process.tls import TlsSettings, client_context, server_context

_REASON = "tls-cluster is yes"


@dataclass(frozen=True)
class BusTls:
    """The TLS contexts for links opened by other nodes (server) and by this one (client)."""

    server: ssl.SSLContext
    client: ssl.SSLContext


def bus_tls(settings: TlsSettings) -> BusTls | None:
    """Read the certificates; None when the bus is not encrypted.

    Raises:
        TlsError: a certificate is missing or unusable.
    """
    if not settings.tls_cluster:
        return None
    return BusTls(server_context(settings, "yes", _REASON), client_context(settings, _REASON))
