"""A mapping that can be scanned in steps and sampled; holds the jobs and the queues of a node.

A plain dict cannot be entered in the middle, so a cursor would have to keep its place for each
client; and it grows by copying itself, which stops a node with millions of jobs. Here entries are
spread over 1024 dicts by the upper bits of a checksum of the key. The cursor is a checksum: a step
returns what is at or above it, lowest first. So an entry that stays is returned exactly once,
whatever else comes and goes, and a scan needs no memory. The checksum does not change from run to
run, so a simulation can be repeated.
"""

import zlib
from collections.abc import Iterator
from itertools import compress
from sys import getsizeof
from typing import Final, Generic, TypeVar

V = TypeVar("V")

_crc32: Final = zlib.crc32  # compiled, an imported name costs a look-up at each use

SHARDS: Final = 1024
SHARD_SHIFT: Final = 22  # of the checksum of a key
_NUMBERS: Final = list(range(SHARDS))  # uncompiled, these are made only once
_ROOMY: Final = 160  # bytes per entry; a dict that just grew has some 80


def shard_number(key: bytes) -> int:
    """The number of the shard that ``key`` is in."""
    return _crc32(key) >> SHARD_SHIFT


class Registry(Generic[V]):
    """A mapping with a stateless cursor. Hot paths access ``shards`` and ``shard_of``.

    Attributes:
        shards: the dicts, in the order of the scan; do not replace them.
        count: number of entries; code that adds to a shard, or removes from it, updates this.
    """

    def __init__(self) -> None:
        self.shards: list[dict[bytes, V]] = [{} for _ in range(SHARDS)]
        self.count = 0
        self._tidied = 0
        # A key is often looked up and then removed, or looked up again.
        self._last_key = b""
        self._last_shard = self.shards[0]

    def __len__(self) -> int:
        return self.count

    def shard_of(self, key: bytes) -> dict[bytes, V]:
        """The dict that contains ``key``, if any does."""
        if key != self._last_key:
            self._last_shard = self.shards[_crc32(key) >> SHARD_SHIFT]
            self._last_key = key
        return self._last_shard

    def get(self, key: bytes) -> V | None:
        """The value of ``key``, or None."""
        if key != self._last_key:
            self._last_shard = self.shards[_crc32(key) >> SHARD_SHIFT]
            self._last_key = key
        return self._last_shard.get(key)

    def put(self, key: bytes, value: V) -> None:
        """Add ``key``, which must not exist."""
        self.shard_of(key)[key] = value
        self.count += 1

    def drop(self, key: bytes) -> None:
        """Remove ``key``, which must exist."""
        del self.shard_of(key)[key]
        self.count -= 1

    def values(self) -> list[V]:
        """All values, in no particular order."""
        # Most dicts of a small registry are empty: skip these without a step of the interpreter.
        shards = self.shards
        return [value for shard in compress(shards, shards) for value in shard.values()]

    def in_turn(self) -> Iterator[V]:
        """All values, in no particular order; each that is there throughout comes once, whatever
        is added or removed in between."""
        for index in range(SHARDS):
            if self.shards[index]:
                yield from list(self.shards[index].values())

    def hand_over(self) -> list[dict[bytes, V]]:
        """Remove all entries and return them."""
        shards = self.shards
        self.shards = [{} for _ in range(SHARDS)]
        self._forget_last()
        self.count = 0
        return shards

    def tidy(self, count: int) -> None:
        """Shrink those of the next ``count`` shards from which many entries were removed: a dict
        never shrinks by itself."""
        for _ in range(count):
            self._tidied = (self._tidied + 1) % SHARDS
            shard = self.shards[self._tidied]
            if getsizeof(shard) > _ROOMY * (len(shard) + 8):
                self.shards[self._tidied] = dict(shard)
                self._forget_last()

    def _forget_last(self) -> None:
        """Forget the dict of the last key, which may have been replaced."""
        self._last_key = b""
        self._last_shard = self.shards[0]

    def scan(self, cursor: int, count: int) -> tuple[int, list[V]]:
        """Do one step of a scan.

        Args:
            cursor: 0 to begin, then what the previous step returned.
            count: about how many entries to visit, at least 1.

        Returns:
            the next cursor (0 at the end), and the visited values.
        """
        found: list[V] = []
        if cursor >> 32:
            return 0, found
        first = cursor >> SHARD_SHIFT
        # Most dicts of a small registry are empty: skip these without a step of the interpreter.
        shards = self.shards[first:] if first else self.shards
        for index in compress(_NUMBERS[first:] if first else _NUMBERS, shards):
            shard = self.shards[index]
            entries: list[tuple[int, V]] = []
            for key, value in shard.items():
                place = _crc32(key)
                if place >= cursor:
                    entries.append((place, value))
            entries.sort(key=_place)
            for position in range(len(entries)):
                place = entries[position][0]
                # Never part keys with the same checksum, or the rest would be missed.
                if len(found) >= count and entries[position - 1][0] != place:
                    return place, found
                found.append(entries[position][1])
            if len(found) >= count and index + 1 < SHARDS:
                return (index + 1) << SHARD_SHIFT, found
        return 0, found


def _place(entry: tuple[int, V]) -> int:
    return entry[0]
