"""A network between nodes that a test can break: a TCP proxy in front of the bus of each node.

A node that announces the port P is called at P + 10000, where the proxy listens; it passes on what
it gets to the port where the node's bus really is. The first packet of a connection says who
calls, so each direction between two nodes can be broken alone. Nodes are named by their index in
the list of doors.

It is a process of its own (``bus_network``). As a thread of the tests it had to wait for those that
are the clients; where the machine was busy with other tests, too, it took up connections when the
nodes had given them up for new ones, and so on without an end.
"""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.support.bus_network import HOST, Pair
from tests.support.fork_server import ROOT
from tests.support.harness import HANG_SECONDS

__all__ = ["HOST", "BusProxy", "Door", "bus_proxy"]


@dataclass(frozen=True)
class Door:
    """A node's client port as it announces it, and the one that it really has."""

    announced: int
    real: int


class BusProxy:
    """The network. All methods may be called from any thread and act before they return.

    Two connections join two nodes, one opened by each. ``cut`` breaks the one that the first node
    opened, with the answers that come back on it. ``stall`` and ``delay`` are about what the first
    node says to the second, on whichever connection.
    """

    def __init__(self, doors: Sequence[Door]) -> None:
        self._doors = list(doors)
        self._lock = threading.Lock()

    # ---- the network -----------------------------------------------------------------------------

    def cut(self, a: int, b: int) -> None:
        """Close the connection that ``a`` opened to ``b`` and refuse further ones."""
        self._do("cut", [(a, b)])

    def stall(self, a: int, b: int) -> None:
        """Hold what ``a`` says to ``b``; connections stay, and the end of one is not told."""
        self._do("stall", [(a, b)])

    def delay(self, a: int, b: int, seconds: float) -> None:
        """Let what ``a`` says to ``b`` take ``seconds``."""
        self._do("delay", [(a, b)], seconds)

    def heal(self) -> None:
        """Nothing is broken any more. What was held arrives now."""
        self._do("heal")

    def split(self, left: Iterable[int], right: Iterable[int], stall: bool = False) -> None:
        """Break everything between two groups: closed and refused, or held (``stall``)."""
        right = list(right)
        pairs = [pair for a in left for b in right for pair in ((a, b), (b, a))]
        self._do("stall" if stall else "cut", pairs)

    def isolate(self, node: int, stall: bool = False) -> None:
        """Break everything between ``node`` and all others."""
        self.split([node], self._others(node), stall)

    def mute(self, node: int) -> None:
        """One-way: nobody hears ``node``, it hears all."""
        self._do("stall", [(node, other) for other in self._others(node)])

    def ring(self) -> None:
        """Each node reaches only the one before and the one behind it."""
        count = len(self._doors)
        near = (0, 1, count - 1)
        pairs = [(a, b) for a in range(count) for b in range(count) if (a - b) % count not in near]
        self._do("cut", pairs)

    def links(self) -> list[Pair]:
        """Who opened a connection to whom, sorted."""
        return [(a, b) for a, b in self._do("links")]

    def _others(self, node: int) -> list[int]:
        return [index for index in range(len(self._doors)) if index != node]

    # ---- the process -----------------------------------------------------------------------------

    def open(self) -> None:
        """Start to listen. Raises OSError when a port is taken."""
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.bus_network", str(theirs.fileno())],
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
            )
        ours.settimeout(HANG_SECONDS)
        self._socket = ours
        self._answers = ours.makefile("rb")
        if problem := self._ask([(door.announced, door.real) for door in self._doors]):
            self.close()
            raise OSError(problem)

    def close(self) -> None:
        """End it, and all connections."""
        self._answers.close()
        self._socket.close()
        self._process.wait(HANG_SECONDS)

    def _do(self, name: str, pairs: Sequence[Pair] = (), seconds: float = 0.0) -> list[Pair]:
        with self._lock:
            found: list[Pair] = self._ask([name, pairs, seconds])
            return found

    def _ask(self, words: object) -> Any:
        self._socket.sendall(json.dumps(words).encode() + b"\n")
        return json.loads(self._answers.readline())


@contextmanager
def bus_proxy(doors: Sequence[Door]) -> Iterator[BusProxy]:
    """A proxy that ends with the block."""
    proxy = BusProxy(doors)
    proxy.open()
    try:
        yield proxy
    finally:
        proxy.close()
