"""A mapping that can be scanned in steps and sampled; it holds the jobs and the queues of a node.

A plain dict cannot be entered in the middle, so a cursor would need to keep its place for each
client, and it grows by copying itself, which stops a node with millions of jobs. Here entries
are spread over 1024 dicts by the upper bits of a checksum of the key. The cursor is a checksum:
a step gives what is at or above it, lowest first, so an entry that is there throughout is given
exactly once whatever comes and goes, and the walk needs no memory. The checksum is one that
does not change from run to run, so a simulation repeats.
"""

import zlib
from sys import getsizeof
from typing import Final, Generic, TypeVar

V = TypeVar("V")

crc32: Final = zlib.crc32  # compiled, an imported name is looked up at each use

SHARDS: Final = 1024
SHARD_SHIFT: Final = 22
_ROOMY: Final = 160  # bytes an entry; one that just grew has some 80


class Registry(Generic[V]):
    """A mapping with a stateless cursor. Hot paths access ``shards`` directly."""

    def __init__(self) -> None:
        self.shards: list[dict[bytes, V]] = [{} for _ in range(SHARDS)]
        self.count = 0
        self._tidied = 0

    def __len__(self) -> int:
        return self.count

    def get(self, key: bytes) -> V | None:
        """The value of ``key`` or None."""
        return self.shards[crc32(key) >> SHARD_SHIFT].get(key)

    def shard(self, key: bytes) -> dict[bytes, V]:
        """The part that has ``key`` if it is there: who looks for it and then adds or removes it
        need not look twice."""
        return self.shards[crc32(key) >> SHARD_SHIFT]

    def put(self, key: bytes, value: V) -> None:
        """Add ``key``, which must not be there."""
        self.shards[crc32(key) >> SHARD_SHIFT][key] = value
        self.count += 1

    def drop(self, key: bytes) -> None:
        """Remove ``key``, which must be there."""
        del self.shards[crc32(key) >> SHARD_SHIFT][key]
        self.count -= 1

    def values(self) -> list[V]:
        """All values, in no order."""
        return [value for shard in self.shards for value in shard.values()]

    def hand_over(self) -> list[dict[bytes, V]]:
        """Remove everything and return it."""
        shards = self.shards
        self.shards = [{} for _ in range(SHARDS)]
        self.count = 0
        return shards

    def tidy(self, count: int) -> None:
        """Shrink the next ``count`` shards if removed entries left room behind: a dict never
        shrinks by itself."""
        for _ in range(count):
            self._tidied = (self._tidied + 1) % SHARDS
            shard = self.shards[self._tidied]
            if getsizeof(shard) > _ROOMY * (len(shard) + 8):
                self.shards[self._tidied] = dict(shard)

    def scan(self, cursor: int, count: int) -> tuple[int, list[V]]:
        """Do one step of a scan.

        Args:
            cursor: 0 to begin, then what the step before returned.
            count: about how many entries to visit, at least 1.

        Returns:
            the next cursor, 0 at the end, and the values visited.
        """
        found: list[V] = []
        if cursor >> 32:
            return 0, found
        for index in range(cursor >> SHARD_SHIFT, SHARDS):
            shard = self.shards[index]
            if not shard:
                continue
            entries: list[tuple[int, V]] = []
            for key, value in shard.items():
                place = crc32(key)
                if place >= cursor:
                    entries.append((place, value))
            entries.sort(key=_place)
            for position in range(len(entries)):
                place = entries[position][0]
                # Keys with one checksum are never parted, or the rest would be missed.
                if len(found) >= count and entries[position - 1][0] != place:
                    return place, found
                found.append(entries[position][1])
            if len(found) >= count and index + 1 < SHARDS:
                return (index + 1) << SHARD_SHIFT, found
        return 0, found


def _place(entry: tuple[int, V]) -> int:
    return entry[0]
