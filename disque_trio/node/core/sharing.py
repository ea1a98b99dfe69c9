"""Spreads what all nodes of a cluster share (see ``versions``).

A change goes at once to all nodes that announce extensions. What got lost on the way, or was missed
by a node that was away, is found by comparing: every few seconds each node that knows anything
tells another one, in turn, the digest of all it knows. A node that reached nobody (because it has
just started, or was cut off) does so as soon as it reaches another. If the digests differ, the
other node sends all it has, and gets what it lacks in return.
"""

from collections.abc import Callable
from typing import Any, Final, Generic

from disque_trio.cluster.peers import Peers
from disque_trio.node.core.versions import (
    DELETED_TTL,
    MAX_CLOCK,
    Entry,
    SharedError,
    V,
    Versions,
)
from disque_trio.protocol.bus import PacketError, PacketWriter
from disque_trio.protocol.fields import (
    Field,
    FieldsError,
    pack_fields,
    pack_number,
    unpack_fields,
    unpack_number,
)
from disque_trio.resp.reply import OK, error, integer
from disque_trio.respserver.client import Client, Pending
from disque_trio.respserver.machine import LONGEST_REST, Machine

COMPARE_EVERY: Final = 5_000  # ms
LOOK_EVERY: Final = 1_000  # ms, for a node that reaches nobody, or has just found the first one
_PACKET: Final = 256 * 1024  # approximate bytes of entries in one packet

# Types of the fields of a packet.
_ENTRY: Final = 1
_ASKED: Final = 2  # the digest of the sender, which wants to know what it lacks
_TOLD: Final = 3  # the digest of the sender, which has sent all it knows
_REACHED: Final = 4  # name and version of an entry, and up to when it is done

# Types of the fields in _REACHED.
_NAME: Final = 1
_TIME: Final = 2
_CLOCK: Final = 3
_NODE: Final = 4


class Commons:
    """All kinds of things shared by name between the nodes of a cluster, as known to one node.

    Attributes:
        kinds: their ``Sharing``, by the type of its packets.
        unsettled: functions to call at the end of the turn.
    """

    def __init__(self) -> None:
        self.kinds: dict[int, Sharing[Any]] = {}
        self.unsettled: list[Callable[[], None]] = []

    def settle(self) -> None:
        """Carry out the changes of this turn."""
        while self.unsettled:
            self.unsettled.pop(0)()

    def cron(self, now: int) -> None:
        """Compare with other nodes."""
        for kind in self.kinds.values():
            kind.cron(now)

    def rest(self) -> int:
        """Return how long ``cron`` may be put off, in ms."""
        return min([kind.rest() for kind in self.kinds.values()])

    def clear(self) -> None:
        """Forget everything, without telling other nodes."""
        for kind in self.kinds.values():
            kind.clear()


class Change(Pending, Generic[V]):
    """The pending reply to a client's change.

    Attributes:
        done: the reply once the change is on disk.
        entry: the change.
        old: the entry that it replaces.
    """

    __slots__ = ("done", "entry", "old")

    def __init__(self, client: Client, done: bytes, entry: Entry[V], old: Entry[V] | None) -> None:
        super().__init__(client, None)
        self.done = done
        self.entry = entry
        self.old = old


class Sharing(Generic[V]):
    """Sends what one node knows to other nodes and to disk, and takes what it hears.

    Args:
        what: its name, for errors: ``policies``.
        type: of the packets.
        machine: provides the time.
        known: what this node knows.
        peers: the rest of the cluster.
        packets: makes this node's packets, and has its id.
        commons: what it becomes part of.

    Attributes:
        keep: writes what is known to disk at once; returns why that failed, or None.
        changed: called when another node changed something that has to be on disk.
        heard: called with the names of what has changed.
    """

    def __init__(
        self,
        what: str,
        type: int,
        machine: Machine,
        known: Versions[V],
        peers: Peers,
        packets: PacketWriter,
        commons: Commons,
    ) -> None:
        self.keep: Callable[[], str | None] = _no_disk
        self.changed: Callable[[], None] = _nobody
        self.heard: Callable[[list[bytes]], None] = _nothing
        self._open: list[Change[V]] = []  # the changes of this turn
        self._unsettled = commons.unsettled
        commons.kinds[type] = self
        self._what = what
        self._type = type
        self._machine = machine
        self._known = known
        self._peers = peers
        self._packets = packets
        self._compare_at = 0
        self._alone = True  # no other node could be reached when the last cron ran
        self._turn = sum(packets.id)  # so that not all nodes begin with the same one

    # ---- local changes -------------------------------------------------------------------------

    def set(self, client: Client, name: bytes, value: V, reached: int = 0) -> None:
        """Set the value of ``name`` here and everywhere; ``client`` gets its reply at the end of
        the turn.

        Raises:
            SharedError: it is refused.
        """
        entry = self._known.make(name, value, self._packets.id, 0)
        entry.reached = reached
        old = self._known.entries.get(name)
        self._known.check(name, value, len(entry.packed) - (len(old.packed) if old else 0))
        self._change(client, OK, entry, old)

    def delete(self, client: Client, name: bytes) -> bool:
        """Delete the entry with exactly this name; ``client`` gets its reply at the end of the
        turn.
        False: there is none."""
        if self._known.named(name) is None:
            return False
        entry = self._known.make(name, None, self._packets.id, self._machine.now)
        self._change(client, integer(1), entry, self._known.entries.get(name))
        return True

    def _change(self, client: Client, reply: bytes, entry: Entry[V], old: Entry[V] | None) -> None:
        if entry.clock > MAX_CLOCK or not self._known.put(entry):
            raise SharedError(f"the logical clock of the {self._what} has reached its end")
        change = Change(client, reply, entry, old)
        client.line_up(change)
        if not self._open:
            self._unsettled.append(self._settle)
        self._open.append(change)
        self.heard([entry.name])

    def reach(self, name: bytes, time: int) -> None:
        """Tell all nodes that ``name`` is done up to ``time`` (ms since the epoch)."""
        entry = self._known.entries.get(name)
        if entry is None or not self._known.reach(entry, time):
            return
        self.changed()
        self.heard([name])
        value = [(_NAME, name), (_TIME, pack_number(time))]
        value += [(_CLOCK, pack_number(entry.clock)), (_NODE, entry.node)]
        packet = self._packets.fields(self._type, [(_REACHED, pack_fields(value))])
        for id in self._others():
            self._peers.send(id, packet)

    def _settle(self) -> None:
        """Write the changes of this turn to disk, all at once, and release their replies. If that
        fails, undo them."""
        changes, self._open = self._open, []
        problem = self.keep()
        if problem:
            refusal = error(f"ERR the {self._what} cannot be written to the disk: {problem}")
            for change in reversed(changes):
                self._known.undo(change.entry, change.old)
                change.reply = refusal
            self.heard([change.entry.name for change in changes])
        else:
            for change in changes:
                change.reply = change.done
            entries = [change.entry for change in changes]
            for id in self._others():
                self._tell(id, entries, [])
        self._machine.answered += changes

    def clear(self) -> None:
        """Forget everything, without telling other nodes."""
        names = list(self._known.entries)
        self._known.clear()
        self.changed()
        self.heard(names)

    # ---- other nodes ---------------------------------------------------------------------------

    def _others(self) -> list[bytes]:
        peers = self._peers
        return [id for id in peers.everyone() if peers.understands(id) and peers.linked(id)]

    def cron(self, now: int) -> None:
        """Compare with another node every few seconds, and forget old deletions."""
        known = self._known
        if not known.entries:
            return
        others = self._others()
        was_alone, self._alone = self._alone, not others
        joins = was_alone and not self._alone
        if not joins and now < self._compare_at <= now + COMPARE_EVERY:
            return
        # A node that was just found may not know this one yet, and ignore what it says.
        self._compare_at = now + (LOOK_EVERY if joins else COMPARE_EVERY)
        if known.forget_deleted(now - DELETED_TTL):
            self.changed()
        if others:
            asked = (_ASKED, pack_number(known.digest))
            self._turn += 1
            other = others[self._turn % len(others)]
            self._peers.send(other, self._packets.fields(self._type, [asked]))

    def rest(self) -> int:
        """Return how long ``cron`` may be put off, in ms."""
        if not self._known.entries or self._peers.size <= 1:
            return LONGEST_REST
        if self._alone:
            return LOOK_EVERY
        return max(1, min(COMPARE_EVERY, self._compare_at - self._machine.now))

    def on_packet(self, sender: bytes, fields: list[Field]) -> None:
        """Handle a packet of ``sender``. Raises ``PacketError``; then nothing has changed."""
        known = self._known
        entries: list[Entry[V]] = []
        reached: list[dict[int, bytes]] = []
        asked = told = -1
        try:
            for type, value in fields:
                if type == _ENTRY:
                    entries.append(known.read_entry(value))
                elif type == _ASKED:
                    asked = unpack_number(value)
                elif type == _TOLD:
                    told = unpack_number(value)
                elif type == _REACHED:
                    found: dict[int, bytes] = dict(unpack_fields(value))
                    for number in (_TIME, _CLOCK):
                        unpack_number(found.get(number, b""))
                    reached.append(found)
        except FieldsError as problem:
            raise PacketError(f"malformed {self._what}: {problem}") from problem
        self._take(entries, reached)
        digest = known.digest
        if asked >= 0 and asked != digest:
            self._tell(sender, list(known.entries.values()), [(_TOLD, pack_number(digest))])
        elif told >= 0 and told != digest:
            self._tell(sender, list(known.entries.values()), [])

    def _take(self, entries: list[Entry[V]], reached: list[dict[int, bytes]]) -> None:
        """Take over what is newer."""
        now = self._machine.now
        changed: list[bytes] = []
        for entry in entries:
            if entry.value is None:
                if entry.deleted < now - DELETED_TTL:
                    continue
                entry.deleted = min(entry.deleted, now)  # a future time would keep it too long
            if self._known.put(entry):
                changed.append(entry.name)
        for found in reached:
            old = self._known.entries.get(found.get(_NAME, b""))
            if (
                old is not None
                and old.clock == unpack_number(found[_CLOCK])
                and old.node == found.get(_NODE)
                and self._known.reach(old, min(unpack_number(found[_TIME]), MAX_CLOCK))
            ):
                changed.append(old.name)
        if changed:
            self.changed()
            self.heard(changed)

    def _tell(self, node: bytes, entries: list[Entry[V]], last: list[Field]) -> None:
        """Send ``entries`` to ``node``, followed by ``last``."""
        fields: list[Field] = []
        size = 0
        for entry in entries:
            data = entry.fields()
            fields.append((_ENTRY, data))
            size += len(data)
            if size >= _PACKET:
                self._peers.send(node, self._packets.fields(self._type, fields))
                fields = []
                size = 0
        fields += last
        if fields:
            self._peers.send(node, self._packets.fields(self._type, fields))


def _no_disk() -> str | None:
    return None


def _nobody() -> None:
    pass


def _nothing(names: list[bytes]) -> None:
    pass
