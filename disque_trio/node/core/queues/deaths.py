"""When jobs of a queue became dead letters, for those who look now and then."""

from typing import Final

from disque_trio.health.table import DEAD_WITHIN

KEPT: Final = DEAD_WITHIN * 1000  # ms


class Deaths:
    """The jobs of a queue that this node has lately made dead letters.

    Attributes:
        last: when the last one was, in ms.
    """

    __slots__ = ("_count", "last")

    def __init__(self) -> None:
        self.last = 0
        self._count = 0

    def note(self, now: int) -> None:
        """Note one, at ``now`` (ms)."""
        self._count = self.lately(now) + 1
        self.last = now

    def lately(self, now: int) -> int:
        """How many there were at ``now`` (ms), counted from the first with no more than ``KEPT``
        between two of them; 0 if the last one is longer ago."""
        return self._count if now - self.last < KEPT else 0
