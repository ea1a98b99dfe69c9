"""Connections to a Redis: a single server, a cluster, or one behind sentinels.

``Server`` and ``Sentinels`` say where it is, ``Options`` how to connect.
"""

from disque_trio.notation.addresses import Address
from disque_trio.redis.servers import Options, Sentinels, Server

__all__ = ["Address", "Options", "Sentinels", "Server"]
