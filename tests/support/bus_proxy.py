"""A network between nodes that a test can break: a TCP proxy in front of the bus of each node.

Other nodes connect to a node that announces port P at P + 10000, where the proxy listens; it
forwards to the node's real bus port. The first packet of a connection identifies the caller, so
each direction between two nodes can be broken separately. Nodes are named by their index in the
list of doors. Clients that go to P, which other nodes name, are always let through.

It is a separate process (``bus_network``). A thread in the test process would have to wait for the
clients' threads; on a busy machine it would serve connections only after the nodes had abandoned
them for new ones, endlessly.
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

from tests.support import ROOT
from tests.support.bus_network import HOST, Pair
from tests.support.harness import HANG_SECONDS

__all__ = ["HOST", "BusProxy", "Door", "bus_proxy"]


@dataclass(frozen=True)
class Door:
    """A node's announced and real client port."""

    announced: int
    real: int


class BusProxy:
    """The network. All methods may be called from any thread and act before they return.

    Two nodes have two connections, one opened by each. ``cut`` breaks the one that the first node
    opened, including the replies on it. ``stall`` and ``delay`` affect what the first node sends to
    the second on either connection.
    """

    def __init__(self, doors: Sequence[Door]) -> None:
        self._doors = list(doors)
        self._lock = threading.Lock()

    # ---- the network -----------------------------------------------------------------------------

    def cut(self, a: int, b: int) -> None:
        """Close the connection that ``a`` opened to ``b`` and refuse further ones."""
        self._do("cut", [(a, b)])

    def stall(self, a: int, b: int) -> None:
        """Hold back what ``a`` sends to ``b``; connections stay open, and ends are not
        forwarded."""
        self._do("stall", [(a, b)])

    def delay(self, a: int, b: int, seconds: float) -> None:
        """Delay what ``a`` sends to ``b`` by ``seconds``."""
        self._do("delay", [(a, b)], seconds)

    def heal(self) -> None:
        """Repair everything. Held data arrives now."""
        self._do("heal")

    def split(self, left: Iterable[int], right: Iterable[int], stall: bool = False) -> None:
        """Break everything between two groups: close and refuse connections, or hold data
        (``stall``)."""
        right = list(right)
        pairs = [pair for a in left for b in right for pair in ((a, b), (b, a))]
        self._do("stall" if stall else "cut", pairs)

    def isolate(self, node: int, stall: bool = False) -> None:
        """Break everything between ``node`` and all others."""
        self.split([node], self._others(node), stall)

    def mute(self, node: int) -> None:
        """One-way failure: nobody receives from ``node``, but it receives from all."""
        self._do("stall", [(node, other) for other in self._others(node)])

    def ring(self) -> None:
        """Let each node reach only the previous and the next one."""
        count = len(self._doors)
        near = (0, 1, count - 1)
        pairs = [(a, b) for a in range(count) for b in range(count) if (a - b) % count not in near]
        self._do("cut", pairs)

    def links(self) -> list[Pair]:
        """The pairs (opener, target) of connections, sorted."""
        return [(a, b) for a, b in self._do("links")]

    def _others(self, node: int) -> list[int]:
        return [index for index in range(len(self._doors)) if index != node]

    # ---- the process -----------------------------------------------------------------------------

    def open(self) -> None:
        """Start listening. Raises OSError if a port is taken."""
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
        """End the process and all connections."""
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
