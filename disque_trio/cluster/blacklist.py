"""Remembers forgotten nodes for a minute, so that gossip does not bring them back.

CLUSTER FORGET has to be said to every node. Until the last one has heard it, the ones that still
know the node would bring it back to those that do not.
"""

FORGOTTEN_FOR = 60_000  # ms
MAX_FORGOTTEN = 1000


class Blacklist:
    """The ids that this node ignores in gossip, each for a minute."""

    def __init__(self) -> None:
        self._ends: dict[bytes, int] = {}  # in the order of their ends

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, id: bytes, time: int) -> None:
        """Ignore ``id`` for a minute from ``time``, ms. The oldest entry is dropped early if there
        are too many."""
        self._clean(time)
        self._ends.pop(id, None)
        if len(self._ends) >= MAX_FORGOTTEN:
            del self._ends[next(iter(self._ends))]
        self._ends[id] = time + FORGOTTEN_FOR

    def has(self, id: bytes, time: int) -> bool:
        """Whether ``id`` is still ignored."""
        return self._ends.get(id, 0) > time

    def clear(self) -> None:
        """Remove all entries."""
        self._ends.clear()

    def _clean(self, time: int) -> None:
        while self._ends:
            oldest = next(iter(self._ends))
            if self._ends[oldest] > time:
                return
            del self._ends[oldest]
