"""What becomes of the other nodes of a cluster, as the log tells it: who joins, fails, comes back,
leaves and is forgotten. It does no I/O and has no clock."""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

EVERY: Final = 60_000  # ms between two lines about the same node and change

JOINED: Final = "a node has joined"
GONE: Final = "a node is forgotten"
FAILED: Final = "most nodes agree that a node is down"
BACK: Final = "a node that was down is back"
LEAVING: Final = "a node is leaving"
STAYING: Final = "a node that was leaving stays"


class Known(NamedTuple):
    """Another node, as this one knows it.

    Attributes:
        id: 40 bytes.
        address: ``ip:port``.
        failed: most nodes agree that it is down.
        leaving: it is about to leave the cluster.
    """

    id: bytes
    address: str
    failed: bool
    leaving: bool


class Story:
    """Tells what has changed between two looks.

    Args:
        tell: called with what has changed and the node; not more than once a minute for the same.
    """

    def __init__(self, tell: Callable[[str, Known], None]) -> None:
        self._tell = tell
        self._known: dict[bytes, Known] | None = None
        self._told: dict[tuple[bytes, str], int] = {}

    def look(self, nodes: Iterable[Known], now: int) -> None:
        """Take all other nodes at ``now``, in ms; the first time, nothing has changed."""
        known = {node.id: node for node in nodes}
        before, self._known = self._known, known
        if before is None or before == known:
            return
        self._told = {key: when for key, when in self._told.items() if 0 <= now - when < EVERY}
        for id, node in before.items():
            if id not in known:
                self._change(GONE, node, now)
        for id, node in known.items():
            old = before.get(id)
            if old is None:
                self._change(JOINED, node, now)
                old = Known(id, node.address, False, False)
            if node.failed != old.failed:
                self._change(FAILED if node.failed else BACK, node, now)
            if node.leaving != old.leaving:
                self._change(LEAVING if node.leaving else STAYING, node, now)

    def _change(self, what: str, node: Known, now: int) -> None:
        key = node.id, what
        if key not in self._told:
            self._told[key] = now
            self._tell(what, node)
