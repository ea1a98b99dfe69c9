"""Which part of a chord is the last one to return, told by UNIQUE keys alone.

Each part takes a place in the bottom row of a tree, and climbs. At a node above two places who
comes first leaves a mark and stops; who comes second finds it, and goes on for both. Whoever gets
to the top is the last one. A part that returns twice, since its worker was killed, finds its own
marks, and so does nothing that it has not done before.
"""

from zlib import crc32

from disque_trio.integrations.celery.store import Store


class Parts:
    """The parts of one chord.

    Args:
        store: has the marks.
        chord: their common key.
        size: how many parts there are.
    """

    def __init__(self, store: Store, chord: bytes, size: int) -> None:
        self._store = store
        self._chord = chord
        self._size = size

    def is_last(self, task: str, index: int | None) -> bool:
        """Whether all others have returned before this part.

        Args:
            task: its id, in the chord.
            index: which one it is, if that is known; several may say the same.
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
        """Take a place, the wish if it is free. None: there are more parts than there should be."""
        for step in range(self._size):
            place = (wish + step) % self._size
            mine = b"%b %d" % (task.encode(), wish)
            if self._mark(self._key(None, place), mine) == mine:
                return place
        return None

    def _mark(self, key: bytes, mark: bytes) -> bytes:
        """The mark at ``key``, which is ``mark`` if there was none."""
        [entry] = self._store.find([key], mark)
        return entry.value

    def _key(self, row: int | None, place: int) -> bytes:
        return b"%b.%b.%d" % (self._chord, b"place" if row is None else b"%d" % row, place)

    def forget(self) -> None:
        """Delete all marks: the chord has gone on."""
        keys = [self._key(None, place) for place in range(self._size)]
        row, width = 0, self._size
        while width > 1:
            keys += [self._key(row, place) for place in range(width // 2)]
            row, width = row + 1, (width + 1) // 2
        self._store.forget(keys)
