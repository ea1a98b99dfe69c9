"""How the command reaches its Redis: with a password, by TLS, a socket, or sentinels.

Owns the translation of options into a client of coredis, which `PressureQueue` connects like. In a
cluster every node leads to the right one, so it needs no client of its own.
"""

import argparse
import os
import ssl
from typing import Any

import coredis
from coredis.client import Client
from coredis.connection import TCPLocation

from disque_trio.pressure.settings import Settings, resolve


def where(options: argparse.Namespace) -> Settings:
    """The settings that options, URL and environment amount to. Raises ValueError as `resolve`."""
    url = options.url
    if url is None:
        return resolve(options.server, options.port, options.db, options.prefix)
    return resolve(url.server, url.port, url.db, options.prefix)


def client_for(options: argparse.Namespace, settings: Settings) -> "Client[Any] | None":
    """What connections have to be like; None if there is nothing to say but where Redis is.

    Raises:
        ValueError: a file of certificates cannot be used; the text names it.
    """
    url = options.url
    password = (url.password if url else None) or os.environ.get("REDISCLI_AUTH") or None
    user = url.user if url else options.user
    socket = url.socket if url else options.socket
    tls = options.tls or (url is not None and url.tls)
    known: dict[str, Any] = {"username": user, "password": password}
    if tls:
        known["ssl_context"] = _context(options)
    if options.sentinel is not None:
        places = [TCPLocation(host, port) for host, port in options.sentinel]
        sentinel = coredis.Sentinel(
            places,
            sentinel_kwargs={"ssl_context": known["ssl_context"]} if tls else {},
            db=settings.db,
            **known,
        )
        return sentinel.primary_for(options.service)
    if socket is not None:
        return coredis.Redis(unix_socket_path=socket, db=settings.db, **known)
    if not tls and user is None and password is None:
        return None
    return coredis.Redis(host=settings.server, port=settings.port, db=settings.db, **known)


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
