"""The known nodes: their addresses and priorities, and the order in which to try them.

Does no I/O; callers pass in the time.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from disque_trio.notation.addresses import Address, read_node
from disque_trio.respclient.errors import ConnectionLost, ProtocolError
from disque_trio.respclient.randomness import RANDOM

DEFAULT_PORT = 7711

LEAVING_PRIORITY = 100
"""The priority with which nodes announce a failed or leaving node; 1 is the best."""

AVOID_SECONDS = 30.0
"""How long a node's own -LEAVING outweighs what other nodes, which learn of it later, announce."""


def parse_address(text: str) -> Address:
    """Read ``host``, ``host:port``, ``[ipv6]:port`` or ``unix:/path``. The port defaults to 7711.

    Raises:
        ValueError: as for ``read_node``.
    """
    return read_node(text, DEFAULT_PORT)


def parse_told(text: str) -> Address:
    """The same of an address that a node has told.

    Raises:
        ConnectionLost: nobody can be reached there.
    """
    try:
        return parse_address(text)
    except ValueError as problem:
        raise ConnectionLost(str(problem)) from problem


@dataclass(frozen=True, slots=True)
class Node:
    """One entry of HELLO's list.

    Attributes:
        id: 40 characters.
        address: where clients reach the node.
        priority: 1 is the best; 100 means failed or leaving.
    """

    id: str
    address: Address
    priority: int


@dataclass(frozen=True, slots=True)
class Hello:
    """A node's reply to HELLO.

    Attributes:
        version: the version of the reply's format, always 1.
        node_id: the id of the node that replied.
        nodes: all nodes that this node knows, itself included.
    """

    version: int
    node_id: str
    nodes: tuple[Node, ...]


def parse_hello(reply: Any, used: Address) -> Hello:
    """Parse the HELLO reply of the node that was reached at ``used``.

    That node itself gets the address ``used``, whatever it calls itself: it may be behind a port
    mapping, or not know its own address yet.

    Raises:
        ProtocolError: a Disque node would not reply this.
    """
    try:
        version, raw_id, *entries = reply
        if version != 1:
            raise ValueError(version)
        node_id = raw_id.decode()
        nodes = []
        for raw, ip, port, priority in entries:
            name = raw.decode()
            mine = name == node_id or not ip
            address = used if mine else Address(host=ip.decode(), port=int(port))
            nodes.append(Node(name, address, int(priority)))
    except (TypeError, ValueError, AttributeError):
        raise ProtocolError(f"{used} does not answer HELLO like a Disque node") from None
    return Hello(version, node_id, tuple(nodes))


class Directory:
    """The nodes to choose from: the seeds, and all nodes that HELLO named.

    A node that HELLO no longer names is forgotten; seeds never are.
    """

    def __init__(self, seeds: Iterable[Address]) -> None:
        self._seeds = list(dict.fromkeys(seeds))
        self._nodes: dict[str, Node] = {}
        self._avoid_until: dict[str, float] = {}
        if not self._seeds:
            raise ValueError("at least one node address is needed")

    def learn(self, hello: Hello) -> None:
        """Replace the known nodes by those of ``hello``."""
        self._nodes = {node.id: node for node in hello.nodes}
        if self._nodes.get(hello.node_id, None) is not None:
            own = self._nodes[hello.node_id]
            if own.priority < LEAVING_PRIORITY:
                self._avoid_until.pop(own.id, None)

    def avoid(self, node_id: str, now: float) -> None:
        """Try a node only after all others for a while: it said -LEAVING at ``now`` (seconds)."""
        self._avoid_until[node_id] = now + AVOID_SECONDS

    def candidates(self, now: float, prefer: Address | None = None) -> list[Address]:
        """Return all addresses, in the order in which to try them.

        Known nodes come first, by priority. Equals are in random order, except that ``prefer``
        comes first among them. Then come seeds that are not the address of a known node, and
        finally nodes to avoid.
        """
        ranked = [(self._rank(node, now), node.address) for node in self._nodes.values()]
        known = {address for _, address in ranked}
        ranked += [(float(LEAVING_PRIORITY - 1), seed) for seed in self._seeds if seed not in known]
        RANDOM.shuffle(ranked)
        ranked.sort(key=lambda entry: (entry[0], entry[1] != prefer))
        return list(dict.fromkeys(address for _, address in ranked))

    def better_than(self, node_id: str, now: float) -> list[Address]:
        """Return the addresses of nodes that rank above ``node_id``, best first."""
        own = self._nodes.get(node_id)
        if own is None:
            return []
        limit = self._rank(own, now)
        better = [node for node in self._nodes.values() if self._rank(node, now) < limit]
        RANDOM.shuffle(better)
        better.sort(key=lambda node: self._rank(node, now))
        return [node.address for node in better]

    def _rank(self, node: Node, now: float) -> float:
        if self._avoid_until.get(node.id, now) > now:
            return float(LEAVING_PRIORITY + node.priority)
        return float(node.priority)
