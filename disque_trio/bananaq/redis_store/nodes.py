"""The nodes of the Redis: their addresses, and the slots that each serves."""

from functools import partial

import trio

from disque_trio.redis.connection import RedisConnection
from disque_trio.redis.servers import Options, Sentinels, Server
from disque_trio.respclient.addresses import Address
from disque_trio.respclient.connection import OnPush


class Nodes:
    """The Redis, or the nodes of a cluster and their slots as far as they were learned.

    Args:
        seconds: in which a node has to reply; None: ten.
        sentinels: who say where ``first`` is, which is but a name then; None: it is where it is.

    Attributes:
        first: the node that is asked first. cluster: whether there are others. known: all nodes, in
            the order in which they are asked. slots: which node has a slot.
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
        """A new link to a node."""
        servers = self._sentinels or Server((node,), self._options)
        connect = partial(servers.connect, on_push=on_push)
        return RedisConnection(nursery, connect, self._seconds)

    def learn(self, slot: int, node: Address) -> None:
        """The node serves ``slot``."""
        self.slots[slot] = node
        if node not in self.known:
            self.known.append(node)

    def forget(self, node: Address) -> None:
        """The node cannot be reached: others are asked about its slots."""
        for slot in [slot for slot, there in self.slots.items() if there == node]:
            del self.slots[slot]
        if node in self.known:
            self.known.remove(node)
            self.known.append(node)
