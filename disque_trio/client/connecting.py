"""Connects a client to a cluster."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import structlog

from disque_trio.client.client import Client
from disque_trio.client.nodes import Directory, parse_address
from disque_trio.client.router import Router
from disque_trio.respclient.background import background
from disque_trio.respclient.connection import Connector
from disque_trio.respclient.delivery import InFlight

_log = structlog.get_logger("disque.client")


@asynccontextmanager
async def connect(
    nodes: str | Sequence[str] = ("127.0.0.1:7711",),
    *,
    password: str | None = None,
    retry_for: float = 30.0,
    connect_timeout: float = 5.0,
) -> AsyncIterator[Client]:
    """Connect to a cluster: ``async with connect(["10.0.0.1:7711", "10.0.0.2:7711"]) as client``.

    Any reachable node of the list will do: HELLO tells the others, and the client moves to the
    node with the best priority. When it loses its node, or the node is leaving the cluster, it
    goes on with another one, whether that was in the list or not.

    At the end of the block jobs that are still held are given back.

    Args:
        nodes: ``host:port``, ``[ipv6]:port`` or ``unix:/path`` of one or some nodes.
        password: for AUTH, sent to every node.
        retry_for: seconds to go on trying to reach a node, at the start as well as later.
        connect_timeout: seconds for one attempt to connect to one node.

    Raises:
        ConnectionLost: no node could be reached.
        AuthError: the password was refused.
        ValueError: an address cannot be read, or there is none.
    """
    if isinstance(nodes, str):
        nodes = [nodes]
    directory = Directory([parse_address(node) for node in nodes])
    async with background() as nursery:
        router = Router(
            Connector(nursery, password, connect_timeout), directory, retry_for=retry_for
        )
        in_flight = InFlight(nursery, _log)
        try:
            await router.session(router.retry())
            yield Client(router, in_flight)
        finally:
            await in_flight.close()
            router.close()
