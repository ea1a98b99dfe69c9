"""Consumers and producers of bananaq, on Trio.

``consumer`` is the loop over events, ``work`` calls a handler for each event, and ``connect``
returns a client for everything else; see docs/bananaq.md. Needs neither the server nor a Redis
library.
"""

from disque_bananaq.client.client import BananaClient, ConnectOptions, connect
from disque_bananaq.client.consuming import Consumer, consumer
from disque_bananaq.client.events import Events, HeldEvent
from disque_bananaq.client.requests import Event
from disque_bananaq.client.worker import work
from disque_trio.respclient.errors import (
    AuthError,
    ConnectionLost,
    DisqueError,
    LoadingError,
    NoPermError,
    OOMError,
    ProtocolError,
    ReplyError,
    TlsError,
)
from disque_trio.respclient.tls import Tls

__all__ = [
    "AuthError",
    "BananaClient",
    "ConnectOptions",
    "ConnectionLost",
    "Consumer",
    "DisqueError",
    "Event",
    "Events",
    "HeldEvent",
    "LoadingError",
    "NoPermError",
    "OOMError",
    "ProtocolError",
    "ReplyError",
    "Tls",
    "TlsError",
    "connect",
    "consumer",
    "work",
]
