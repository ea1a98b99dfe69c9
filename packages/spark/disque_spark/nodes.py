"""The nodes of a cluster as a driver sees them, with a connection to each.

Nodes come and go while a stream runs: a node that does not answer is left out for a while.
"""

import time
from collections.abc import Callable, Sequence

from disque_spark.client import Arg, BlockingClient, WireError
from disque_trio.respclient.blocking import Reply
from disque_trio.respclient.login import Login

DISCOVER_SECONDS = 5.0
DOWN_SECONDS = 5.0
DOWN_MOST = 60.0


class Nodes:
    """A connection to each node that can be reached.

    Args:
        seeds: addresses to begin with.
        login: how to log in.
        discover: whether to ask nodes for the others of their cluster.
        timeout: seconds to wait for a reply.
        clock: returns monotonic seconds.
    """

    def __init__(
        self,
        seeds: Sequence[str],
        login: Login | None = None,
        discover: bool = True,
        timeout: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seeds = list(seeds)
        self._login = login
        self._discover = discover
        self._timeout = timeout
        self._clock = clock
        self._known = list(seeds)
        self._discovered = -DISCOVER_SECONDS
        self._clients: dict[str, BlockingClient] = {}
        self._down: dict[str, tuple[float, float]] = {}  # until when, and the length of the pause

    def addresses(self) -> list[str]:
        """All known nodes, including those that do not answer now."""
        now = self._clock()
        if self._discover and now - self._discovered >= DISCOVER_SECONDS:
            found = self._find(self._seeds) or self._find(self._known)
            if found:
                self._known = found
                self._discovered = now
        return list(self._known)

    def ask(self, requests: Sequence[Sequence[Arg]]) -> dict[str, list[Reply]]:
        """Send requests to every node that can be reached; return their replies by address."""
        answers: dict[str, list[Reply]] = {}
        for address in self.addresses():
            try:
                answers[address] = self.client(address).pipeline(requests)
            except WireError:
                self.lost(address)
            else:
                self._down.pop(address, None)
        return answers

    def client(self, address: str) -> BlockingClient:
        """The connection to a node.

        Raises:
            WireError: it did not answer a short time ago.
        """
        if self._down.get(address, (0.0, 0.0))[0] > self._clock():
            raise WireError(f"{address}: did not answer recently")
        if address not in self._clients:
            self._clients[address] = BlockingClient([address], self._login, self._timeout)
        return self._clients[address]

    def lost(self, address: str) -> None:
        """A node did not answer: leave it out for a while, longer each time."""
        until, pause = self._down.get(address, (0.0, DOWN_SECONDS / 2))
        if until <= self._clock():
            pause = min(2 * pause, DOWN_MOST)
            self._down[address] = (self._clock() + pause, pause)
        client = self._clients.pop(address, None)
        if client is not None:
            client.close()

    def _find(self, addresses: Sequence[str]) -> list[str]:
        """The nodes of the clusters of those ``addresses`` that answer, each node once."""
        own: dict[str, str] = {}  # addresses by id
        others: dict[str, str] = {}
        for address in addresses:
            try:
                id, entries = self.client(address).hello()
            except WireError:
                self.lost(address)
                continue
            # The address at which it answered is more reliable than the one it reports.
            own.setdefault(id, address)
            others.update((entry.id, entry.address) for entry in entries)
        return [*own.values(), *(at for id, at in others.items() if id not in own)]

    def close(self) -> None:
        """Close all connections."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()


def discovered(client: BlockingClient) -> list[str]:
    """The addresses of the cluster that ``client`` is connected to, its own first."""
    own, entries = client.hello()
    return [client.address] + [entry.address for entry in entries if entry.id != own]
