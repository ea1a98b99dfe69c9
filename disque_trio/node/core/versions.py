"""The things all nodes of a cluster share by name: queue policies, schedules, bindings.

Each change has a version: a logical clock and the id of the node that made it. Of two changes to a
name, the one with the higher version counts, so the order in which they arrive does not matter.
Deletions are remembered for a while, or a node that was away would undo them.
"""

from hashlib import blake2b
from typing import Final, Generic, TypeVar

from disque_trio.protocol.fields import (
    Field,
    FieldsError,
    pack_fields,
    pack_number,
    unpack_fields,
    unpack_number,
)
from disque_trio.protocol.serialjob import NODE_ID_LENGTH

MAX_NAME: Final = 4_096  # bytes
MAX_CLOCK: Final = 2**48
MAX_DELETED: Final = 10_000
DELETED_TTL: Final = 30 * 86_400_000  # ms for which a deletion is remembered
_DIGEST: Final = 2**64 - 1

# Types of the fields of an entry; a value has those from 5 to 12 and from 20 on. Unknown types are
# ignored.
_NAME: Final = 1
_CLOCK: Final = 2
_NODE: Final = 3
_DELETED: Final = 4
_WHEN: Final = 13  # it was deleted, in ms since the epoch
_REACHED: Final = 14


class SharedError(ValueError):
    """A change is refused; the text says why."""


class Shared:
    """The value of a name."""

    def fields(self) -> list[Field]:
        """Its fields on the bus."""
        raise NotImplementedError


V = TypeVar("V", bound=Shared)


class Entry(Generic[V]):
    """The latest news about a name: a value, or its deletion.

    Attributes:
        value: None: it was deleted.
        clock, node: the version: logical time of the change, and id of the node that made it.
        deleted: when it was deleted, in ms since the epoch; 0: it was not.
        reached: up to when it is done, in ms since the epoch: the latest time that any node reports
            for this version; 0: there is none.
        packed: name, version and value, which nodes compare.
    """

    def __init__(
        self, name: bytes, value: V | None, clock: int, node: bytes, deleted: int, reached: int = 0
    ) -> None:
        self.name = name
        self.value = value
        self.clock = clock
        self.node = node
        self.deleted = deleted
        self.reached = reached
        fields = [(_NAME, name), (_CLOCK, pack_number(clock)), (_NODE, node)]
        self.packed = pack_fields(fields + ([(_DELETED, b"")] if value is None else value.fields()))
        self._digest = _hash(self.packed)

    def digest(self) -> int:
        """A 64-bit number that is the same wherever the whole entry is."""
        if not self.reached:
            return self._digest
        return self._digest ^ _hash(self.name + pack_number(self.reached))

    def after(self, other: "Entry[V]") -> bool:
        """Whether this entry is newer. Of two different entries, one always is."""
        if self.clock != other.clock:
            return self.clock > other.clock
        if self.node != other.node:
            return self.node > other.node
        return self.packed > other.packed  # a node whose file was restored may reuse a version

    def fields(self) -> bytes:
        """The packed entry for the bus."""
        more: list[Field] = []
        if self.value is None:
            more.append((_WHEN, pack_number(self.deleted)))
        if self.reached:
            more.append((_REACHED, pack_number(self.reached)))
        return self.packed + pack_fields(more)


class Versions(Generic[V]):
    """The entries of one node, by name.

    Attributes:
        count: number of names with a value. If it is 0, nothing else need be asked.
        size: bytes of names and values.
        entries: by name, including deleted ones.
        clock: the highest logical time heard of.
        digest: of all entries; equal on nodes that know the same.
    """

    def __init__(self) -> None:
        self.count = 0
        self.size = 0
        self.entries: dict[bytes, Entry[V]] = {}
        self.clock = 0
        self.digest = 0
        self._deleted = 0

    def named(self, name: bytes) -> V | None:
        """The value of exactly this name."""
        entry = self.entries.get(name)
        return None if entry is None else entry.value

    def all(self) -> list[V]:
        """Return all values, sorted by name."""
        entries = [self.entries[name] for name in sorted(self.entries)]
        return [entry.value for entry in entries if entry.value is not None]

    def read(self, values: dict[int, bytes]) -> V:
        """Make the value from the fields of an entry, by type. Raises ``FieldsError``."""
        raise NotImplementedError

    def check(self, name: bytes, value: V, grows: int) -> None:
        """Raise ``SharedError`` if there is no room for ``value``, which has ``grows`` more bytes
        than the current one."""

    def changed(self) -> None:
        """Called after ``entries`` has changed."""

    # ---- changes --------------------------------------------------------------------------------

    def make(self, name: bytes, value: V | None, node: bytes, now: int) -> Entry[V]:
        """Return a change that this ``node`` makes now (ms since the epoch), to be ``put``.
        ``value``: None to delete it."""
        return Entry(name, value, self.clock + 1, node, now if value is None else 0)

    def put(self, entry: Entry[V]) -> bool:
        """Take ``entry`` unless a newer one of its name is known. Return whether anything
        changed."""
        self.clock = max(self.clock, entry.clock)
        old = self.entries.get(entry.name)
        if old is not None:
            if not entry.after(old):
                return entry.packed == old.packed and self.reach(old, entry.reached)
            self.account(old, -1)
        self.entries[entry.name] = entry
        self.account(entry, 1)
        self.changed()
        if self._deleted > MAX_DELETED:
            self._remove(min((e for e in self.entries.values() if e.value is None), key=_age))
        return True

    def reach(self, entry: Entry[V], time: int) -> bool:
        """Note that ``entry`` is done up to ``time`` (ms since the epoch). Return whether that is
        news."""
        if time <= entry.reached:
            return False
        self.digest = (self.digest - entry.digest()) & _DIGEST
        entry.reached = time
        self.digest = (self.digest + entry.digest()) & _DIGEST
        return True

    def undo(self, entry: Entry[V], old: Entry[V] | None) -> None:
        """Replace ``entry`` with ``old`` again, unless a newer one came."""
        if self.entries.get(entry.name) is not entry:
            return
        self._remove(entry)
        if old is not None:
            self.entries[old.name] = old
            self.account(old, 1)
            self.changed()

    def forget_deleted(self, before: int) -> bool:
        """Forget deletions from before that time (ms). Return whether there were any."""
        old = [e for e in self.entries.values() if e.value is None and e.deleted < before]
        for entry in old:
            self._remove(entry)
        return len(old) > 0

    def clear(self) -> None:
        """Forget everything."""
        self.count = self.size = self.clock = self.digest = self._deleted = 0
        self.entries.clear()
        self.changed()

    def _remove(self, entry: Entry[V]) -> None:
        del self.entries[entry.name]
        self.account(entry, -1)
        self.changed()

    def account(self, entry: Entry[V], step: int) -> None:
        """Count ``entry``, which is added (``step`` 1) or removed (-1)."""
        self.digest = (self.digest + step * entry.digest()) & _DIGEST
        self.size += step * len(entry.packed)
        if entry.value is None:
            self._deleted += step
        else:
            self.count += step

    def read_entry(self, data: bytes) -> Entry[V]:
        """Parse an entry from another node (``Entry.fields``). Raises ``FieldsError``."""
        values: dict[int, bytes] = dict(unpack_fields(data))
        name = values.get(_NAME, b"")
        node = values.get(_NODE, b"")
        clock = unpack_number(values.get(_CLOCK, b""))
        if not name or len(name) > MAX_NAME or len(node) != NODE_ID_LENGTH or clock > MAX_CLOCK:
            raise FieldsError("an entry without a name, a node or a time")
        reached = number_in(values, _REACHED, 0, MAX_CLOCK)
        if _DELETED in values:
            return Entry(name, None, clock, node, unpack_number(values.get(_WHEN, b"")), reached)
        values[_NAME] = name
        return Entry(name, self.read(values), clock, node, 0, reached)


def name_in(values: dict[int, bytes]) -> bytes:
    """The name of the entry with these fields."""
    return values[_NAME]


def number_in(values: dict[int, bytes], type: int, default: int, most: int) -> int:
    """The number in the field ``type``. Raises ``FieldsError`` if it is more than ``most``."""
    value = values.get(type)
    if value is None:
        return default
    number = unpack_number(value)
    if number > most:
        raise FieldsError(f"{number} is too large")
    return number


def _age(entry: "Entry[V]") -> tuple[int, bytes, bytes]:
    return entry.clock, entry.node, entry.packed


def _hash(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")
