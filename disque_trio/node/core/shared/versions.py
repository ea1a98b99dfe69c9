"""The things all nodes of a cluster share by name: queue policies, schedules, bindings.

Each change has a version: a logical clock and the id of the node that made it. Of two changes to a
name, the one with the higher version counts, so the order in which they arrive does not matter.
Deletions are remembered for a while, or a node that was away would undo them.

Whatever a client, another node or the file says becomes an entry in one place, ``Versions.entry``,
so that whatever one of them may bring can be written to the file, and read again.

Nodes of a newer release may know fields, flags and values that this one does not. Such an entry
stays as it came, byte for byte, in memory, in the file and in packets, and is read again by the
release that knows it.
"""

import hashlib
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final, Generic, TypeVar

from disque_trio.cluster.members import is_node_id
from disque_trio.protocol.fields import (
    Field,
    pack_fields,
    pack_number,
    unpack_fields,
    unpack_number,
)
from disque_trio.respserver.acl.user import SetUserError, check_name

MAX_NAME: Final = 4_096  # bytes
MAX_CLOCK: Final = 2**62
# A change of another node whose clock is further ahead of one's own than this is not taken: no
# cluster makes as many changes, and the clock would come to its end.
MAX_AHEAD: Final = 2**32
MAX_TIME: Final = 2**48  # ms since the epoch
MAX_WHEN: Final = 2**63 - 1  # of a deletion, in ms since the epoch
MAX_PACKED: Final = 512 * 1024  # bytes of an entry
MAX_DELETED: Final = 10_000
DELETED_TTL: Final = 30 * 86_400_000  # ms for which a deletion is remembered
_DIGEST: Final = 2**64 - 1

# Types of the fields of an entry; a value has those from 5 to 12 and from 20 on. Those from 13 to
# 19 are not compared; of these, unknown types are ignored.
_NAME: Final = 1
_CLOCK: Final = 2
_NODE: Final = 3
_DELETED: Final = 4
_WHEN: Final = 13  # it was deleted, in ms since the epoch
_REACHED: Final = 14
_LAST_APART: Final = 19
# The user who made a schedule or a binding. A node whose release does not know it keeps it, as
# whatever it does not know: it leaves such a schedule to the others, but not such a binding.
USER: Final = 26


class SharedError(ValueError):
    """A change is refused; the text says why."""


class Shared:
    """The value of a name.

    Attributes:
        unknown: fields that only newer releases know.
        user: the name of the user who made it, and with whose rights it acts; empty: nobody's
            rights limit it.
    """

    def __init__(self) -> None:
        self.unknown: list[Field] = []
        self.user = b""

    def problem(self) -> str:
        """Return why no node may have it; empty: nothing is wrong."""
        raise NotImplementedError

    def fields(self) -> list[Field]:
        """Its fields on the bus."""
        raise NotImplementedError

    def user_fields(self) -> list[Field]:
        """The field with its user, if it has one."""
        return [(USER, self.user)] if self.user else []


V = TypeVar("V", bound=Shared)


class Entry(Generic[V]):
    """The latest news about a name: a value, or its deletion.

    Attributes:
        value: None: it was deleted, or only newer releases know what to do with it.
        clock, node: the version: logical time of the change, and id of the node that made it.
        deleted: when it was deleted, in ms since the epoch; 0: it was not.
        reached: up to when it is done, in ms since the epoch: the latest time that any node reports
            for this version; 0: there is none.
        packed: name, version and value, which nodes compare.
        strange: it has fields, flags or values that only newer releases know.
        raw: it has to be kept as it was packed: the words of a value would not give the same.
    """

    def __init__(
        self,
        name: bytes,
        value: V | None,
        clock: int,
        node: bytes,
        deleted: int,
        reached: int = 0,
        packed: bytes = b"",
        strange: bool = False,
    ) -> None:
        self.name = name
        self.value = value
        self.clock = clock
        self.node = node
        self.deleted = deleted
        self.reached = reached
        self.strange = strange
        fields = [(_NAME, name), (_CLOCK, pack_number(clock)), (_NODE, node)]
        fields += [(_DELETED, b"")] if value is None else value.fields()
        usual = pack_fields(fields)
        self.packed = packed or usual
        self.raw = strange or self.packed != usual
        self._digest = _hash(self.packed)

    def is_deletion(self) -> bool:
        """Whether the name was deleted."""
        return self.value is None and not self.strange

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
        if self.is_deletion():
            more.append((_WHEN, pack_number(self.deleted)))
        if self.reached:
            more.append((_REACHED, pack_number(self.reached)))
        return self.packed + pack_fields(more)


class Versions(Generic[V]):
    """The entries of one node, by name.

    Args:
        types: of the fields of a value that this release knows.
        acts: a value with fields that are not known counts as far as it is known; otherwise not at
            all.
        reaches: entries say up to when they are done.

    Attributes:
        count: number of names with a value. If it is 0, nothing else need be asked.
        size: bytes of names and values.
        entries: by name, including deleted ones.
        clock: the highest logical time heard of.
        digest: of all entries; equal on nodes that know the same.
        strange: number of names with a value that only newer releases know completely.
        made_by: while a file is read: version, name and user of the last line, if it says who made
            what the next line says.
        on_count: called with each value that is added (and 1) or removed (and -1).
    """

    def __init__(self, types: frozenset[int], acts: bool = True, reaches: bool = False) -> None:
        self._types = types
        self._acts = acts
        self._reaches = reaches
        self.strange = 0
        self.count = 0
        self.size = 0
        self.entries: dict[bytes, Entry[V]] = {}
        self.clock = 0
        self.digest = 0
        self.on_count: Callable[[V, int], None] | None = None
        self._deleted = 0
        # A heap of the deletions, the oldest first; some have been replaced or forgotten.
        self._oldest: list[tuple[int, bytes, bytes, bytes]] = []
        self.made_by: list[bytes] = []

    def named(self, name: bytes) -> V | None:
        """The value of exactly this name."""
        entry = self.entries.get(name)
        return None if entry is None else entry.value

    def all(self) -> list[V]:
        """Return all values, sorted by name."""
        entries = [self.entries[name] for name in sorted(self.entries)]
        return [entry.value for entry in entries if entry.value is not None]

    def read(self, values: dict[int, bytes]) -> V:
        """Make the value from the fields of an entry, by type; known fields with values that only
        newer releases know are in its ``unknown``. Raises ``FieldsError``."""
        raise NotImplementedError

    def check(self, name: bytes, value: V, grows: int) -> None:
        """Raise ``SharedError`` if there is no room for ``value``, which has ``grows`` more bytes
        than the current one."""

    def changed(self) -> None:
        """Called after ``entries`` has changed."""

    # ---- changes --------------------------------------------------------------------------------

    def make(self, name: bytes, value: V | None, node: bytes, now: int) -> Entry[V]:
        """Return a change that this ``node`` makes now (ms since the epoch), to be ``put``.
        ``value``: None to delete it. Raises ``SharedError``: no node may have it."""
        return self.entry(name, value, self.clock + 1, node, now if value is None else 0)

    def entry(
        self,
        name: bytes,
        value: V | None,
        clock: int,
        node: bytes,
        deleted: int,
        reached: int = 0,
        packed: bytes = b"",
    ) -> Entry[V]:
        """Make an entry of what a client, the file or another node says. ``packed``: how it came;
        empty: in words.

        Raises:
            SharedError: no node may have it; the text says why.
        """
        if not 0 < len(name) <= MAX_NAME:
            raise SharedError(f"a name must have 1 to {MAX_NAME} bytes")
        if not is_node_id(node):
            raise SharedError("expected the id of a node")
        if clock > MAX_CLOCK:
            raise SharedError("the logical clock has reached its end")
        if deleted > MAX_WHEN or reached > MAX_TIME:
            raise SharedError("a time is too late")
        strange = False
        if value is not None:
            problem = value.problem()
            if problem:
                raise SharedError(problem)
            if value.user:
                _check_user(value.user)
            strange = len(value.unknown) > 0
            if strange and not self._acts:
                value = None
        entry = Entry(name, value, clock, node, deleted, reached, packed, strange)
        if len(entry.packed) > MAX_PACKED:
            raise SharedError(f"it has more than {MAX_PACKED} bytes")
        return entry

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
        if entry.is_deletion():
            heappush(self._oldest, _age(entry))
            if self._deleted > MAX_DELETED:
                self._forget_oldest()
            elif len(self._oldest) > 2 * MAX_DELETED:
                self._oldest = sorted(
                    [_age(other) for other in self.entries.values() if other.is_deletion()]
                )
        return True

    def _forget_oldest(self) -> None:
        """Forget the oldest deletion. Another node may tell very many at once, so this must not
        look at all that are known."""
        while self._oldest:
            packed, name = heappop(self._oldest)[2:]
            entry = self.entries.get(name)
            if entry is not None and entry.packed == packed:
                self._remove(entry)
                break

    def reach(self, entry: Entry[V], time: int) -> bool:
        """Note that ``entry`` is done up to ``time`` (ms since the epoch). Return whether that is
        news."""
        if time <= entry.reached or not self._reaches:
            return False
        self.digest = (self.digest - entry.digest()) & _DIGEST
        entry.reached = time
        self.digest = (self.digest + entry.digest()) & _DIGEST
        return True

    def undo(self, entry: Entry[V], old: Entry[V] | None) -> bool:
        """Replace ``entry`` with ``old`` again, unless a newer one came. Return whether it did."""
        if self.entries.get(entry.name) is not entry:
            return False
        self._remove(entry)
        if old is not None:
            self.entries[old.name] = old
            self.account(old, 1)
            self.changed()
        return True

    def forget_deleted(self, before: int) -> bool:
        """Forget deletions from before that time (ms). Return whether there were any."""
        old = [e for e in self.entries.values() if e.is_deletion() and e.deleted < before]
        for entry in old:
            self._remove(entry)
        return len(old) > 0

    def clear(self) -> None:
        """Forget everything."""
        if self.on_count is not None:
            for value in self.all():
                self.on_count(value, -1)
        self.count = self.size = self.clock = self.digest = self._deleted = self.strange = 0
        self.entries.clear()
        self._oldest.clear()
        self.changed()

    def _remove(self, entry: Entry[V]) -> None:
        del self.entries[entry.name]
        self.account(entry, -1)
        self.changed()

    def account(self, entry: Entry[V], step: int) -> None:
        """Count ``entry``, which is added (``step`` 1) or removed (-1)."""
        self.digest = (self.digest + step * entry.digest()) & _DIGEST
        self.size += step * len(entry.packed)
        if entry.strange:
            self.strange += step
        if entry.value is not None:
            self.count += step
            if self.on_count is not None:
                self.on_count(entry.value, step)
        elif not entry.strange:
            self._deleted += step

    def read_entry(self, data: bytes) -> Entry[V]:
        """Parse an entry from another node (``Entry.fields``).

        Raises:
            FieldsError: these are no fields of an entry.
            SharedError: no node may have it.
        """
        fields = unpack_fields(data)
        values: dict[int, bytes] = dict(fields)
        packed = pack_fields([field for field in fields if _is_compared(field[0])])
        name = values.get(_NAME, b"")
        node = values.get(_NODE, b"")
        clock = unpack_number(values.get(_CLOCK, b""))
        reached = number_in(values, _REACHED, 0) if self._reaches else 0
        if _DELETED in values:
            when = min(unpack_number(values.get(_WHEN, b"")), MAX_WHEN)
            return self.entry(name, None, clock, node, when, reached, packed)
        values[_NAME] = name
        value = self.read(values)
        value.unknown += [
            (type, values[type])
            for type in values
            if type > _DELETED and _is_compared(type) and type not in self._types
        ]
        return self.entry(name, value, clock, node, 0, reached, packed)


def _check_user(name: bytes) -> None:
    try:
        check_name(name)
    except SetUserError as problem:
        raise SharedError(str(problem)) from problem


def name_in(values: dict[int, bytes]) -> bytes:
    """The name of the entry with these fields."""
    return values[_NAME]


def number_in(values: dict[int, bytes], type: int, default: int) -> int:
    """The number in the field ``type``. Raises ``FieldsError``."""
    value = values.get(type)
    return default if value is None else unpack_number(value)


def _is_compared(type: int) -> bool:
    """Whether fields of this type are part of what nodes compare."""
    return not _WHEN <= type <= _LAST_APART


def _age(entry: "Entry[V]") -> tuple[int, bytes, bytes, bytes]:
    return entry.clock, entry.node, entry.packed, entry.name


def _hash(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")
