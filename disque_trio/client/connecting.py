"""Connects a client to a cluster."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext

from disque_trio.client.client import Client
from disque_trio.client.nodes import Directory, parse_address
from disque_trio.client.patience import patience
from disque_trio.client.router import Router
from disque_trio.client.urls import Cluster
from disque_trio.respclient.background import background
from disque_trio.respclient.connection import Connector
from disque_trio.respclient.delivery import InFlight
from disque_trio.respclient.log import library_log
from disque_trio.respclient.tls import TlsOption

_log = library_log("disque.client")


@asynccontextmanager
async def connect(
    nodes: str | Sequence[str] = ("127.0.0.1:7711",),
    *,
    username: str | None = None,
    password: str | None = None,
    tls: TlsOption = None,
    client_name: str | None = None,
    hints: bool = True,
    retry_for: float = 30.0,
    connect_timeout: float = 5.0,
) -> AsyncIterator[Client]:
    """Connect to a cluster: ``async with connect(["10.0.0.1:7711", "10.0.0.2:7711"]) as client``.

    Any reachable node of the list will do: HELLO names the others, and the client moves to the
    node with the best priority. When it loses its node, or the node is leaving the cluster, it
    continues with another node, whether or not that was in the list.

    At the end of the block, jobs that are still held are given back.

    Args:
        nodes: one or more nodes, as ``host:port``, ``[ipv6]:port`` or ``unix:/path``; or their
            URLs, such as ``disques://user:password@host:7711``, which can also carry the next five
            arguments.
        username, password: for AUTH, sent to every node. Without a username, the default user.
        tls: how to encrypt connections: a ``Tls``, an ``ssl.SSLContext``, or True to trust the
            system's certificate authorities.
        client_name: the name of the connections in CLIENT LIST and in the console. If a node
            refuses it, connections to that node have no name.
        hints: add and take jobs at the nodes that are best for their queues, if the node in use
            knows them (QOWNER); False: always at the node in use.
        retry_for: seconds to keep trying to reach a node, both at the start and later.
        connect_timeout: seconds for each attempt to connect to a node.

    Raises:
        ConnectionLost: no node could be reached.
        TlsError: TLS failed with all nodes; raised at once.
        AuthError: the user or the password was refused.
        ValueError: an address is malformed or there is none; a certificate file cannot be used; or
            no node would accept the client name.
    """
    cluster = Cluster.of(nodes, username, password, tls, client_name, hints)
    async with connect_to(cluster, retry_for, connect_timeout) as client:
        yield client


@asynccontextmanager
async def connect_to(
    cluster: Cluster,
    retry_for: float,
    connect_timeout: float = 5.0,
    first: float | None = None,
) -> AsyncIterator[Client]:
    """Like ``connect``, but takes the nodes and their credentials as a ``Cluster``.

    ``first``: the seconds for which to try at the start, if that differs.
    """
    directory = Directory([parse_address(node) for node in cluster.nodes])
    async with background() as nursery:
        connector = Connector(nursery, cluster.login, connect_timeout)
        hinted = nursery if cluster.hints else None
        router = Router(connector, directory, retry_for=retry_for, hinted=hinted)
        in_flight = InFlight(nursery, _log)
        try:
            with nullcontext() if first is None else patience(first):
                await router.session(router.retry())
            yield Client(router, in_flight)
        finally:
            await in_flight.close()
            router.close()
