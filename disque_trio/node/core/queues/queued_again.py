"""When jobs came into their queues that had been there before."""

from typing import Final

MOST: Final = 50_000  # known at least; twice as many at most


class QueuedAgain:
    """The moments for the latest jobs of a node, by id.

    There are two generations of them, since taking the oldest out of one dict, again and again,
    takes long.
    """

    def __init__(self) -> None:
        self._latest: dict[bytes, int] = {}
        self._older: dict[bytes, int] = {}

    def note(self, id: bytes, at: int) -> None:
        """Note that the job ``id`` was queued again ``at`` this moment (ms)."""
        self._latest[id] = at
        if len(self._latest) > MOST:
            self._older = self._latest
            self._latest = {}

    def at(self, id: bytes) -> int:
        """When the job ``id`` was last queued again, in ms; 0: not, or not lately."""
        return self._latest.get(id) or self._older.get(id, 0)

    def drop(self, id: bytes) -> None:
        """Forget the job ``id``."""
        if self._latest:
            self._latest.pop(id, None)
        if self._older:
            self._older.pop(id, None)
