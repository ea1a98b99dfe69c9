"""Interned sets of the nodes that may hold a job.

Most jobs of a node have one of a few sets of holders. So a set is a tuple of ids that all its jobs
share: it costs a job nothing, and is serialised only once.
"""

from typing import Final
from zlib import crc32

from disque_trio.protocol.serialjob import split_nodes

MANY: Final = 4096  # cached sets; a cluster large enough to have more makes them again


class ReplicaSets:
    """Makes and shares the sets of nodes that one node refers to."""

    def __init__(self) -> None:
        self._shared: dict[tuple[bytes, ...], tuple[bytes, ...]] = {}
        self._encoded: dict[tuple[bytes, ...], bytes] = {}
        self._read: dict[bytes, tuple[bytes, ...]] = {}
        self._marks: dict[tuple[bytes, ...], int] = {}
        # The set that was last asked for; the next is usually the same.
        self._set: tuple[bytes, ...] = ()
        self._mark = 0
        self._larger: dict[tuple[tuple[bytes, ...], bytes], tuple[bytes, ...]] = {}

    def of(self, ids: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """The shared tuple that equals ``ids``."""
        known = self._shared.get(ids)
        if known is None:
            if len(self._shared) >= MANY:
                self._shared.clear()
            known = self._shared[ids] = ids
        return known

    def read(self, raw: bytes) -> tuple[bytes, ...]:
        """The set whose concatenated ids are ``raw``."""
        known = self._read.get(raw)
        if known is None:
            if len(self._read) >= MANY:
                self._read.clear()
            known = self._read[raw] = self.of(tuple(dict.fromkeys(split_nodes(raw))))
        return known

    def encode(self, ids: tuple[bytes, ...]) -> bytes:
        """The concatenated ``ids``, as in a serialised job."""
        encoded = self._encoded.get(ids)
        if encoded is None:
            if len(self._encoded) >= MANY:
                self._encoded.clear()
            encoded = self._encoded[ids] = b"".join(ids)
        return encoded

    def mark(self, ids: tuple[bytes, ...]) -> int:
        """A 16-bit mark of the set, never 0, by which two nodes see whether they know of the same
        holders. Does not depend on the order of ``ids``."""
        if ids is self._set and self._mark:
            return self._mark
        mark = self._marks.get(ids)
        if mark is None:
            if len(self._marks) >= MANY:
                self._marks.clear()
            mark = self._marks[ids] = crc32(b"".join(sorted(ids))) % 0xFFFF + 1
        self._set = ids
        self._mark = mark
        return mark

    def add(self, ids: tuple[bytes, ...], id: bytes) -> tuple[bytes, ...]:
        """The set of ``ids`` and ``id``, which is not among them."""
        key = (ids, id)
        larger = self._larger.get(key)
        if larger is None:
            if len(self._larger) >= MANY:
                self._larger.clear()
            larger = self._larger[key] = self.of((*ids, id))
        return larger
