"""Connects a client to a cluster."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import structlog

from disque_trio.client.client import Client
from disque_trio.client.nodes import Directory, parse_address
from disque_trio.client.router import Router
from disque_trio.client.urls import Cluster
from disque_trio.respclient.background import background
from disque_trio.respclient.connection import Connector
from disque_trio.respclient.delivery import InFlight
from disque_trio.respclient.tls import TlsOption

_log = structlog.get_logger("disque.client")


@asynccontextmanager
async def connect(
    nodes: str | Sequence[str] = ("127.0.0.1:7711",),
    *,
    username: str | None = None,
    password: str | None = None,
    tls: TlsOption = None,
    retry_for: float = 30.0,
    connect_timeout: float = 5.0,
) -> AsyncIterator[Client]:
    """Connect to a cluster: ``async with connect(["10.0.0.1:7711", "10.0.0.2:7711"]) as client``.

    Any reachable node of the list will do: HELLO tells the others, and the client moves to the
    node with the best priority. When it loses its node, or the node is leaving the cluster, it
    goes on with another one, whether that was in the list or not.

    At the end of the block jobs that are still held are given back.

    Args:
        nodes: ``host:port``, ``[ipv6]:port`` or ``unix:/path`` of one or some nodes; or their URLs,
            such as ``disques://user:password@host:7711``, which say the next three as well.
        username, password: for AUTH, sent to every node. Without a name it is the default user.
        tls: encrypt what goes over the network: a ``Tls``, an ``ssl.SSLContext``, or True for the
            authorities of the system.
        retry_for: seconds to go on trying to reach a node, at the start as well as later.
        connect_timeout: seconds for one attempt to connect to one node.

    Raises:
        ConnectionLost: no node could be reached. TlsError, at once: TLS failed with all of them.
        AuthError: the user or the password was refused.
        ValueError: an address cannot be read, or there is none; a file of certificates cannot be
            used.
    """
    cluster = Cluster.of(nodes, username, password, tls)
    async with connect_to(cluster, retry_for, connect_timeout) as client:
        yield client


@asynccontextmanager
async def connect_to(
    cluster: Cluster, retry_for: float, connect_timeout: float = 5.0
) -> AsyncIterator[Client]:
    """``connect`` to nodes that are known with all that they want to hear."""
    directory = Directory([parse_address(node) for node in cluster.nodes])
    async with background() as nursery:
        connector = Connector(nursery, cluster.login, connect_timeout)
        router = Router(connector, directory, retry_for=retry_for)
        in_flight = InFlight(nursery, _log)
        try:
            await router.session(router.retry())
            yield Client(router, in_flight)
        finally:
            await in_flight.close()
            router.close()
