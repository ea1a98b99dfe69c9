"""Connects the command to its Redis: with a password, TLS, a Unix socket or sentinels.

Owns the translation of options into what ``PressureQueue`` connects to. In a cluster, any node
redirects to the right one.
"""

import argparse
import os

from disque_pressure.settings import Settings, resolve
from disque_trio.notation.addresses import Address
from disque_trio.redis.servers import Options, Sentinels, Server
from disque_trio.respclient.tls import Encryption, of_arguments


def where(options: argparse.Namespace) -> Settings:
    """Return the settings from options, URL and environment. Raises the errors of ``resolve``."""
    url = options.url
    if url is None:
        return resolve(options.server, options.port, options.db, options.prefix)
    return resolve(url.server, url.port, url.db, options.prefix)


def client_for(options: argparse.Namespace, settings: Settings) -> Server | Sentinels:
    """Return what to connect to, and how.

    Raises:
        ValueError: a certificate file cannot be used; the text names it.
    """
    url = options.url
    password = (url.password if url else None) or os.environ.get("REDISCLI_AUTH") or None
    user = url.user if url else options.user
    socket = url.socket if url else options.socket
    tls = of_arguments(options, options.tls or (url is not None and url.tls))
    if tls is not None:
        Encryption.of(tls)  # reads the files
    how = Options(settings.db, user, password, tls=tls)
    if options.sentinel is not None:
        secret = os.environ.get("REDISCLI_SENTINEL_AUTH") or None
        ask = Options(username=options.sentinel_user, password=secret, tls=tls)
        sentinels = [Server((Address(*place),), ask) for place in options.sentinel]
        return Sentinels(tuple(sentinels), options.service, how)
    if socket is not None:
        return Server((Address(path=socket),), how)
    return Server((Address(settings.server, settings.port),), how)
