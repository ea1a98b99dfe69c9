"""Determines which part of a chord is the last to return, using only UNIQUE keys.

Each part takes a place in the bottom row of a tree, and climbs. At a node above two places, the
first part to arrive leaves a mark and stops; the second one finds that mark and goes on for both.
The part that gets to the top is the last one. A part that returns twice, because its worker was
killed, finds its own marks, and so does nothing new.
"""

from zlib import crc32

from disque_integrations.celery.store import Store


class Parts:
    """The parts of one chord.

    Args:
        store: keeps the marks.
        chord: the common key of its parts.
        size: the number of parts.
    """

    def __init__(self, store: Store, chord: bytes, size: int) -> None:
        self._store = store
        self._chord = chord
        self._size = size

    def is_last(self, task: str, index: int | None) -> bool:
        """Return whether all other parts have returned before this one.

        Args:
            task: the id of the part's task.
            index: the number of the part, if known; several parts may give the same.
        """
        place = self._place(task, crc32(task.encode()) if index is None else index)
        if place is None:
            return False
        row, width = 0, self._size
        while width > 1:
            if place ^ 1 < width:
                mine = b"%d" % place
                if self._mark(self._key(row, place // 2), mine) == mine:
                    return False
            row, place, width = row + 1, place // 2, (width + 1) // 2
        return True

    def _place(self, task: str, wish: int) -> int | None:
        """Take a place, preferably ``wish``. None: there are more parts than there should be."""
        for step in range(self._size):
            place = (wish + step) % self._size
            mine = b"%b %d" % (task.encode(), wish)
            if self._mark(self._key(None, place), mine) == mine:
                return place
        return None

    def _mark(self, key: bytes, mark: bytes) -> bytes:
        """Return the mark at ``key``; set it to ``mark`` if there is none."""
        [entry] = self._store.find([key], mark)
        return entry.value

    def _key(self, row: int | None, place: int) -> bytes:
        return b"%b.%b.%d" % (self._chord, b"place" if row is None else b"%d" % row, place)

    def forget(self) -> None:
        """Delete all marks, once the chord has continued."""
        keys = [self._key(None, place) for place in range(self._size)]
        row, width = 0, self._size
        while width > 1:
            keys += [self._key(row, place) for place in range(width // 2)]
            row, width = row + 1, (width + 1) // 2
        self._store.forget(keys)
