"""The nodes of the Redis: their addresses, and the slots that each serves."""

from functools import partial

import trio

from disque_trio.notation.addresses import Address
from disque_trio.redis.connection import RedisConnection
from disque_trio.redis.servers import Options, Sentinels, Server
from disque_trio.respclient.connection import OnPush


class Nodes:
    """The Redis, or the known nodes of a cluster and their slots.

    Args:
        seconds: the time in which a node must reply; None: ten seconds.
        sentinels: these know where ``first`` is, which is then only a name; None: no sentinels.

    Attributes:
        first: the node to ask first.
        cluster: whether there are other nodes.
        known: all nodes, in the order in which to ask them.
        slots: the node of each slot.
    """

    def __init__(
        self,
        first: Address,
        options: Options,
        *,
        cluster: bool = False,
        others: tuple[Address, ...] = (),
        seconds: float | None = None,
        sentinels: Sentinels | None = None,
    ) -> None:
        self.first = first
        self.cluster = cluster
        self._options = options
        self._seconds = seconds
        self._sentinels = sentinels
        self.known = [first, *others]
        self.slots: dict[int, Address] = {}

    def link(
        self, nursery: trio.Nursery, node: Address, on_push: OnPush | None = None
    ) -> RedisConnection:
        """Return a new link to a node."""
        servers = self._sentinels or Server((node,), self._options)
        connect = partial(servers.connect, on_push=on_push)
        return RedisConnection(nursery, connect, self._seconds)

    def learn(self, slot: int, node: Address) -> None:
        """Note that the node serves ``slot``."""
        self.slots[slot] = node
        if node not in self.known:
            self.known.append(node)

    def forget(self, node: Address) -> None:
        """Note that the node cannot be reached, so that others are asked about its slots."""
        for slot in [slot for slot, there in self.slots.items() if there == node]:
            del self.slots[slot]
        if node in self.known:
            self.known.remove(node)
            self.known.append(node)
