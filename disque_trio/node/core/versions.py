"""What all nodes of a cluster have in common, by name: policies of queues, schedules,
bindings.

Each change has a version: a logical clock and the id of the node that made it, and of two changes
of a name the one with the higher version counts, so that the order in which they arrive does not
matter. What was deleted is remembered for a while, or a node that was away would bring it back.
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
DELETED_TTL: Final = 30 * 86_400_000  # ms that a deletion is remembered
_DIGEST: Final = 2**64 - 1

# Types of the fields of an entry; a value has those from 5 to 12 and from 20 on. Types that are not
# known are passed over.
_NAME: Final = 1
_CLOCK: Final = 2
_NODE: Final = 3
_DELETED: Final = 4
_WHEN: Final = 13  # it was deleted, ms since the epoch
_REACHED: Final = 14


class SharedError(ValueError):
    """A change is refused; the text says why."""


class Shared:
    """What a name stands for."""

    def fields(self) -> list[Field]:
        """It on the bus."""
        raise NotImplementedError


V = TypeVar("V", bound=Shared)


class Entry(Generic[V]):
    """What is known of a name: a value, or that it was deleted.

    Attributes:
        value: None: it was deleted.
        clock, node: the version: logical time of the change, and id of the node that made it.
        deleted: when that was, ms since the epoch; 0: it was not.
        reached: a time up to which all is done (ms since the epoch): of one version, the latest
            that any node tells counts; 0: there is none.
        packed: name, version and value, which is what nodes compare.
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
        """A number of 64 bits, which is the same where all of the entry is."""
        if not self.reached:
            return self._digest
        return self._digest ^ _hash(self.name + pack_number(self.reached))

    def after(self, other: "Entry[V]") -> bool:
        """Whether this is the newer one. Two that differ are never the same age."""
        if self.clock != other.clock:
            return self.clock > other.clock
        if self.node != other.node:
            return self.node > other.node
        return self.packed > other.packed  # a node whose file was put back counts a second time

    def fields(self) -> bytes:
        """The entry on the bus."""
        more: list[Field] = []
        if self.value is None:
            more.append((_WHEN, pack_number(self.deleted)))
        if self.reached:
            more.append((_REACHED, pack_number(self.reached)))
        return self.packed + pack_fields(more)


class Versions(Generic[V]):
    """What a node knows.

    Attributes:
        count: of names that have a value. Where it is 0, nothing else need be asked.
        size: bytes of the names and of what they have.
        entries: by name, deleted ones among them.
        clock: the highest logical time that was heard of.
        digest: of all entries: equal where two nodes know the same.
    """

    def __init__(self) -> None:
        self.count = 0
        self.size = 0
        self.entries: dict[bytes, Entry[V]] = {}
        self.clock = 0
        self.digest = 0
        self._deleted = 0

    def named(self, name: bytes) -> V | None:
        """What was set for just this name."""
        entry = self.entries.get(name)
        return None if entry is None else entry.value

    def all(self) -> list[V]:
        """All values, by name."""
        entries = [self.entries[name] for name in sorted(self.entries)]
        return [entry.value for entry in entries if entry.value is not None]

    def read(self, values: dict[int, bytes]) -> V:
        """The value in the fields of an entry, by their types. Raises FieldsError."""
        raise NotImplementedError

    def check(self, name: bytes, value: V, grows: int) -> None:
        """Raise SharedError where there is no room for ``value``, which has ``grows`` bytes more
        than what there is now."""

    def changed(self) -> None:
        """Called when ``entries`` has changed."""

    # ---- changes --------------------------------------------------------------------------------

    def make(self, name: bytes, value: V | None, node: bytes, now: int) -> Entry[V]:
        """A change that this ``node`` makes now (ms since the epoch); ``put`` carries it out.
        ``value`` is None to delete it."""
        return Entry(name, value, self.clock + 1, node, now if value is None else 0)

    def put(self, entry: Entry[V]) -> bool:
        """Take ``entry`` over unless a newer one of its name is known. Returns whether anything
        is different now."""
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
        """All is done up to ``time`` (ms since the epoch). Returns whether that is news."""
        if time <= entry.reached:
            return False
        self.digest = (self.digest - entry.digest()) & _DIGEST
        entry.reached = time
        self.digest = (self.digest + entry.digest()) & _DIGEST
        return True

    def undo(self, entry: Entry[V], old: Entry[V] | None) -> None:
        """Take back that ``entry`` was put in the place of ``old``, unless a newer one came."""
        if self.entries.get(entry.name) is not entry:
            return
        self._remove(entry)
        if old is not None:
            self.entries[old.name] = old
            self.account(old, 1)
            self.changed()

    def forget_deleted(self, before: int) -> bool:
        """Forget deletions from ``before`` that time (ms). Returns whether there were any."""
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
        """``entry`` comes (``step`` 1) or goes (-1)."""
        self.digest = (self.digest + step * entry.digest()) & _DIGEST
        self.size += step * len(entry.packed)
        if entry.value is None:
            self._deleted += step
        else:
            self.count += step

    def read_entry(self, data: bytes) -> Entry[V]:
        """The entry that another node sent (``Entry.fields``). Raises FieldsError."""
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
    """The number in the field ``type``. Raises FieldsError: it is more than ``most``."""
    value = values.get(type)
    if value is None:
        return default
    number = unpack_number(value)
    if number > most:
        raise FieldsError(f"{number} is too much")
    return number


def _age(entry: "Entry[V]") -> tuple[int, bytes, bytes]:
    return entry.clock, entry.node, entry.packed


def _hash(data: bytes) -> int:
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big")
