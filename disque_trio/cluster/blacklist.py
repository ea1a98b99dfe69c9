"""Remembers forgotten nodes for a minute, so that gossip does not bring them back.

CLUSTER FORGET has to be sent to every node. Until the last one has it, the nodes that still know
the forgotten node would bring it back to the others.
"""

FORGOTTEN_FOR = 60_000  # ms
MAX_FORGOTTEN = 1000


class Blacklist:
    """The ids that this node ignores in gossip, each for a minute."""

    def __init__(self) -> None:
        self._ends: dict[bytes, int] = {}  # in order of expiry

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, id: bytes, time: int) -> None:
        """Ignore ``id`` for a minute from ``time`` (ms). If there are too many entries, the oldest
        is dropped early."""
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
