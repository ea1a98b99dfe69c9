"""Connects the command to its Redis: with a password, TLS, a socket, or sentinels.

Owns the translation of options into what ``PressureQueue`` connects to. In a cluster every node
leads to the right one.
"""

import argparse
import os
import ssl

from disque_trio.pressure.settings import Settings, resolve
from disque_trio.redis.servers import Options, Sentinels, Server
from disque_trio.respclient.addresses import Address


def where(options: argparse.Namespace) -> Settings:
    """The settings that options, URL and environment amount to. Raises as ``resolve``."""
    url = options.url
    if url is None:
        return resolve(options.server, options.port, options.db, options.prefix)
    return resolve(url.server, url.port, url.db, options.prefix)


def client_for(options: argparse.Namespace, settings: Settings) -> Server | Sentinels:
    """What to connect to, and how.

    Raises:
        ValueError: a file of certificates cannot be used; the text names it.
    """
    url = options.url
    password = (url.password if url else None) or os.environ.get("REDISCLI_AUTH") or None
    user = url.user if url else options.user
    socket = url.socket if url else options.socket
    tls = _context(options) if options.tls or (url is not None and url.tls) else None
    how = Options(settings.db, user, password, tls=tls)
    if options.sentinel is not None:
        sentinels = [Server((Address(*place),), Options(tls=tls)) for place in options.sentinel]
        return Sentinels(tuple(sentinels), options.service, how)
    if socket is not None:
        return Server((Address(path=socket),), how)
    return Server((Address(settings.server, settings.port),), how)


def _context(options: argparse.Namespace) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=options.cacert)
    except OSError as error:
        raise ValueError(f"--cacert {options.cacert}: {_why(error)}") from error
    if options.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if options.cert is not None:
        try:
            # A key that is locked would be asked for at the terminal.
            context.load_cert_chain(options.cert, options.key, password=_locked)
        except (OSError, ValueError) as error:
            files = " and ".join(name for name in (options.cert, options.key) if name is not None)
            raise ValueError(f"--cert, --key {files}: {_why(error)}") from error
    return context


def _locked() -> str:
    raise ValueError("the key is locked by a password")


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
