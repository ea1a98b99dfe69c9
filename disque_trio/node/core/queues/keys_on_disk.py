"""The keys (UNIQUE) of jobs that lie on disk: they stay in memory."""

from struct import Struct
from typing import Final

from disque_trio.node.core.jobs.uniques import Entry
from disque_trio.node.core.pages.segment import Segment
from disque_trio.node.core.queues.store import JobStore
from disque_trio.protocol.keyrecord import CONFIRMED

KEY_TAKES: Final = 200  # bytes of memory for the key of a job on disk, besides the key
_ENTRY: Final = Struct("<q?")  # of a key: until when it is kept, and whether that is its time


class KeysOnDisk:
    """The keys of jobs that lie on disk.

    Args:
        store: the jobs.
    """

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._pages = store.queues.pages
        self._keys: dict[bytes, tuple[bytes, bytes]] = {}  # queue and key, by id

    def add(self, id: bytes, queue: bytes, key: bytes) -> None:
        """Note that the job ``id``, which goes to disk, has this key of ``queue``."""
        self._keys[id] = (queue, key)
        self._pages.count(KEY_TAKES + len(key))

    def entry(self, id: bytes) -> Entry | None:
        """The entry of the key of the job ``id``; None: it has none."""
        key = self._keys.get(id)
        entry = None if key is None else self._store.uniques.find(*key)
        return entry if entry is not None and entry.id == id else None

    def take(self, id: bytes) -> Entry | None:
        """Forget the job ``id``, which leaves the disk; return the entry of its key, if it has
        one."""
        if id not in self._keys:
            return None
        entry = self.entry(id)
        self._pages.count(-KEY_TAKES - len(self._keys.pop(id)[1]))
        return entry

    def lost(self) -> list[bytes]:
        """The ids of those jobs that are not on disk any more."""
        return [id for id in self._keys if not self._pages.find(id)]

    def clear(self) -> None:
        """Forget all; the memory account was reset."""
        self._keys.clear()

    def pack(self, segments: dict[int, Segment]) -> list[bytes]:
        """The keys of the jobs in ``segments`` (by number), for ``restore``."""
        packed: list[bytes] = []
        for id, (queue, key) in self._keys.items():
            places = self._pages.find(id)
            if places and self._pages.at(places[0])[0].number in segments:
                entry = self.entry(id)
                facts = b"" if entry is None else _ENTRY.pack(entry.until, entry.lasts)
                packed += (id, queue, key, facts)
        return packed

    def restore(self, packed: list[bytes]) -> None:
        """Note the keys that an earlier process has packed; hold them as if the jobs were
        loaded."""
        uniques = self._store.uniques
        for at in range(0, len(packed), 4):
            id, queue, key, facts = packed[at : at + 4]
            self.add(id, queue, key)
            if facts and uniques.find(queue, key) is None:
                until, lasts = _ENTRY.unpack(facts)
                if until > self._store.machine.now:
                    uniques.add(queue, key, id, CONFIRMED, lasts, until)
