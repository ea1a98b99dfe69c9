"""When something happened to jobs, for the latest of them."""

from typing import Final

MOST: Final = 100_000


class Moments:
    """Moments by the id of the job.

    There are two generations of them, since taking the oldest out of one dict, again and again,
    takes long.

    Args:
        most: of how many jobs they are kept at most, and of half as many at least.
    """

    def __init__(self, most: int = MOST) -> None:
        self._half = most // 2
        self._latest: dict[bytes, int] = {}
        self._older: dict[bytes, int] = {}

    def note(self, id: bytes, at: int) -> None:
        """Note that it happened to the job ``id`` ``at`` this moment (ms)."""
        if len(self._latest) >= self._half:
            self._older = self._latest
            self._latest = {}
        self._latest[id] = at

    def at(self, id: bytes) -> int:
        """When it last happened to the job ``id``, in ms; 0: never, or too long ago."""
        return self._latest.get(id) or self._older.get(id, 0)

    def pop(self, id: bytes) -> int:
        """Forget that it happened to the job ``id``; return what ``at`` would."""
        found = self._latest.pop(id, 0) if self._latest else 0
        older = self._older.pop(id, 0) if self._older else 0
        return found or older
