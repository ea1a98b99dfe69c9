"""A link to a cluster: requests go to whichever node answers.

Tasks of Spark talk to nodes through it: they stay with one node as long as it answers, or visit
all nodes in turn.
"""

import time
from collections.abc import Callable, Sequence

from disque_spark.client import Arg, BlockingClient, WireError, text_of
from disque_trio.notation.addresses import format_address
from disque_trio.respclient.blocking import Reply
from disque_trio.respclient.login import Login

# Errors after which another node, or the same one later, may accept the request.
RETRIED = frozenset(("NOREPL", "NOUNIQ", "LEAVING", "OOM", "LOADING", "MISCONF"))
WELL = 1  # the priority of a node that is neither away nor leaving
PAUSE = 0.1  # s


class NodeConnections:
    """Connections to the nodes of a cluster, each opened on first use. A lost node is left out
    until all nodes are lost.

    Args:
        nodes: addresses, in the order to try them.
        login, timeout: see ``BlockingClient``.
        failover: seconds to look for a node when none answers.
        discover: whether to ask nodes for the others of the cluster.
        first: with ``discover``, the index, modulo their number, of the healthy node to begin
            with; None: the one that answered.
        pause: seconds between rounds through all nodes.
        sleep, clock: as in the module ``time``.
    """

    def __init__(
        self,
        nodes: Sequence[str],
        login: Login | None = None,
        timeout: float = 60.0,
        failover: float = 30.0,
        discover: bool = True,
        first: int | None = None,
        pause: float = PAUSE,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not nodes:
            raise ValueError("no node to connect to")
        self._nodes = list(dict.fromkeys(nodes))
        self._login = login
        self._timeout = timeout
        self._failover = failover
        self._discover = discover
        self._first = first
        self._pause = pause
        self._sleep = sleep
        self._clock = clock
        self._at = 0  # index of the current node
        self._in_turn = len(self._nodes)  # number of nodes, from the first, to visit in turn
        self._size = len(self._nodes)
        self._lost: dict[str, str] = {}  # reasons by address
        self._clients: dict[str, BlockingClient] = {}

    @property
    def address(self) -> str:
        """Address of the node that the next request goes to."""
        return self._nodes[self._at]

    @property
    def nodes(self) -> list[str]:
        """All known addresses, beginning with the current one."""
        return self._nodes[self._at :] + self._nodes[: self._at]

    def size(self, seconds: float | None = None) -> int:
        """Ask a node how many nodes the cluster has.

        Args:
            seconds: how long to look for a node; None: ``failover``.

        Raises:
            WireError: no node can be reached.
        """
        self._discover = True
        self.send([("PING",)], seconds)
        return self._size

    def send(self, requests: Sequence[Sequence[Arg]], seconds: float | None = None) -> list[Reply]:
        """Send requests and return all replies. Requests without a reply are sent again, to
        another node.

        Args:
            seconds: how long to look for a node; None: ``failover``.

        Raises:
            WireError: no node can be reached; any of the requests may have been executed.
        """
        patience = self._failover if seconds is None else seconds
        replies: list[Reply] = []
        deadline: float | None = None
        while len(replies) < len(requests):
            open_before = self._is_open()
            try:
                if self._discover:
                    self._find()
                replies += self._client().pipeline(requests[len(replies) :])
            except WireError as lost:
                replies += lost.replies
                now = self._clock()
                if lost.replies or deadline is None:
                    deadline = now + patience
                # If an open connection broke, the node may have restarted: try it once more.
                self._lose(str(lost), again=open_before)
                if len(self._lost) == len(self._nodes):
                    if now >= deadline:
                        raise WireError(
                            "no node can be reached: " + "; ".join(self._lost.values())
                        ) from lost
                    self._sleep(self._pause)
                    self._lost.clear()
        return replies

    def turn(self) -> None:
        """Go on to the next node, for the next request."""
        for step in range(1, self._in_turn + 1):
            at = (self._at + step) % self._in_turn
            if self._nodes[at] not in self._lost:
                self._at = at
                return

    def close(self) -> None:
        """Close all connections; the next request opens a new one."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def meet(self, queue: str) -> None:
        """Go to the node that is best for ``queue``, where its consumers meet its producers, if
        that node is known here and not lost."""
        [reply] = self.send([("QOWNER", queue)])
        if not isinstance(reply, list) or not isinstance(reply[0], list):
            return  # the node does not know, or this user may not ask
        _, host, port = [text_of(field) for field in reply[0]]
        address = format_address(host, int(port)) if host else self.address
        if address in self._nodes and address not in self._lost:
            self._at = self._nodes.index(address)

    def _is_open(self) -> bool:
        client = self._clients.get(self.address)
        return client is not None and bool(client.address)

    def _client(self) -> BlockingClient:
        if self.address not in self._clients:
            self._clients[self.address] = BlockingClient([self.address], self._login, self._timeout)
        return self._clients[self.address]

    def _lose(self, why: str, again: bool) -> None:
        """Go on to the next node that is not lost, if there is one."""
        if not again:
            self._lost[self.address] = why.removeprefix("no node can be reached: ")
        order = self.nodes[1:] + self.nodes[:1]
        self._at = self._nodes.index(next((a for a in order if a not in self._lost), order[0]))

    def _find(self) -> None:
        """Ask the current node for the nodes of the cluster."""
        here = self.address
        own, entries = self._client().hello()
        self._discover = False
        # The address at which it answered is more reliable than the one it reports.
        found = {entry.id: entry.address for entry in entries} | {own: here}
        well = sorted(found[entry.id] for entry in entries if entry.priority == WELL) or [here]
        self._size = len(found)
        self._in_turn = len(well)
        # The others are used only when all these are lost.
        self._nodes = list(dict.fromkeys([*well, *found.values(), *self._nodes]))
        self._at = self._nodes.index(here)
        if self._first is not None:
            self._at, self._first = self._first % len(well), None
            if self.address in self._lost:
                self.turn()
