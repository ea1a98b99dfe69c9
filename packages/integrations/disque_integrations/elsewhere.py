"""Asks the other nodes of a cluster what the node in use may not know."""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import trio

from disque_trio.client.client import Client
from disque_trio.client.connecting import connect_to
from disque_trio.client.nodes import LEAVING_PRIORITY
from disque_trio.client.urls import Cluster
from disque_trio.respclient.errors import DisqueError

T = TypeVar("T")

PATIENCE: Final = 1.0
"""Seconds that other nodes have to answer."""


async def ask_others(
    client: Client,
    cluster: Cluster,
    ask: Callable[[Client], Awaitable[T]],
    patience: float = PATIENCE,
) -> list[T]:
    """Call ``ask`` with a client of each other node; return what came of it at those that answered.

    Args:
        client: of the node in use.
        cluster: the nodes, and how to log in.
        patience: seconds that they have.

    Raises:
        DisqueError: the node in use does not say which others there are.
    """
    found: list[T] = []

    async def try_to_ask(address: str) -> None:
        try:
            async with connect_to(cluster.only(address), 0, PATIENCE) as node:
                found.append(await ask(node))
        except DisqueError:
            pass  # it cannot be asked at the moment

    hello = await client.hello()
    with trio.move_on_after(patience):
        async with trio.open_nursery() as nursery:
            for node in hello.nodes:
                if node.id != hello.node_id and node.priority < LEAVING_PRIORITY:
                    nursery.start_soon(try_to_ask, str(node.address))
    return found
