"""The known nodes: their addresses and priorities, and the order in which to try them.

Owns the directory of known nodes. No I/O: time and randomness come from the caller.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from disque_trio.respclient.addresses import Address
from disque_trio.respclient.errors import ProtocolError

DEFAULT_PORT = 7711

LEAVING_PRIORITY = 100
"""The priority under which nodes announce a failed or leaving node; 1 is the best."""

AVOID_SECONDS = 30.0
"""How long a node's own -LEAVING outweighs what the others, who hear of it later, say of it."""


def parse_address(text: str) -> Address:
    """Read ``host``, ``host:port``, ``[ipv6]:port`` or ``unix:/path``. The port defaults to 7711.

    Raises:
        ValueError: the text is none of these.
    """
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        if not path:
            raise ValueError(f"no path in the node address {text!r}")
        return Address(path=path)
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"expected [ipv6]:port, got {text!r}")
        port = rest[1:]
    elif text.count(":") > 1:
        host, port = text, ""  # a bare IPv6 address
    else:
        host, _, port = text.partition(":")
    if not host:
        raise ValueError(f"no host in the node address {text!r}")
    if port and not (port.isdecimal() and 0 < int(port) < 65536):
        raise ValueError(f"the port of {text!r} is not a number from 1 to 65535")
    return Address(host=host, port=int(port) if port else DEFAULT_PORT)


@dataclass(frozen=True, slots=True)
class Node:
    """One entry of HELLO's list.

    Attributes:
        id: the node's 40 characters.
        address: where clients reach it.
        priority: 1 is the best; 100 means failed or leaving.
    """

    id: str
    address: Address
    priority: int


@dataclass(frozen=True, slots=True)
class Hello:
    """A node's reply to HELLO.

    Attributes:
        version: of the format of the answer, 1.
        node_id: the id of the node that answers.
        nodes: all nodes that it knows, itself included.
    """

    version: int
    node_id: str
    nodes: tuple[Node, ...]


def parse_hello(reply: Any, used: Address) -> Hello:
    """Read HELLO's reply, given by the node that was reached at ``used``.

    For that node itself the address that worked is kept, whatever it calls itself (it may sit
    behind a port mapping, or not know its own address yet).

    Raises:
        ProtocolError: this is not what a Disque node answers.
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
    """The nodes to choose from: the given seeds and all nodes that HELLO has named.

    A node that others no longer name is forgotten, the seeds never.
    """

    def __init__(self, seeds: Iterable[Address]) -> None:
        self._seeds = list(dict.fromkeys(seeds))
        self._nodes: dict[str, Node] = {}
        self._avoid_until: dict[str, float] = {}
        if not self._seeds:
            raise ValueError("at least one node address is needed")

    def learn(self, hello: Hello) -> None:
        """Take over the list of a node, which replaces the one before."""
        self._nodes = {node.id: node for node in hello.nodes}
        if self._nodes.get(hello.node_id, None) is not None:
            own = self._nodes[hello.node_id]
            if own.priority < LEAVING_PRIORITY:
                self._avoid_until.pop(own.id, None)

    def avoid(self, node_id: str, now: float) -> None:
        """The node said -LEAVING at ``now`` (seconds): come back to it only if no other will do."""
        self._avoid_until[node_id] = now + AVOID_SECONDS

    def candidates(self, now: float, prefer: Address | None = None) -> list[Address]:
        """All addresses, the one to try first in front.

        Known nodes by priority, at random among equals (but ``prefer`` before its equals); seeds
        that no known node accounts for follow; nodes to be avoided come last.
        """
        ranked = [(self._rank(node, now), node.address) for node in self._nodes.values()]
        known = {address for _, address in ranked}
        ranked += [(float(LEAVING_PRIORITY - 1), seed) for seed in self._seeds if seed not in known]
        random.shuffle(ranked)
        ranked.sort(key=lambda entry: (entry[0], entry[1] != prefer))
        return list(dict.fromkeys(address for _, address in ranked))

    def better_than(self, node_id: str, now: float) -> list[Address]:
        """Addresses of the nodes with a lower priority number than ``node_id``, best first."""
        own = self._nodes.get(node_id)
        if own is None:
            return []
        limit = self._rank(own, now)
        better = [node for node in self._nodes.values() if self._rank(node, now) < limit]
        random.shuffle(better)
        better.sort(key=lambda node: self._rank(node, now))
        return [node.address for node in better]

    def _rank(self, node: Node, now: float) -> float:
        if self._avoid_until.get(node.id, now) > now:
            return float(LEAVING_PRIORITY + node.priority)
        return float(node.priority)
