"""Connections to a Redis: a single server, a cluster, or one behind sentinels.

``Server`` and ``Sentinels`` say where it is, ``Options`` how to connect.
"""

from disque_trio.redis.servers import Options, Sentinels, Server
from disque_trio.respclient.addresses import Address

__all__ = ["Address", "Options", "Sentinels", "Server"]
