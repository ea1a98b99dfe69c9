"""Spreads what all nodes of a cluster share (see ``versions``).

A change goes at once to all nodes that announce extensions. What got lost on the way, or was missed
by a node that was away, is found by comparing: every few seconds each node that knows anything
tells another one, in turn, the digest of all it knows. It does so at once with nodes to which
connections are new: one of the two may have been away. If the digests differ, the other node sends
all it has, and gets what it lacks in return.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Generic

from disque_trio.cluster.peers import Peers
from disque_trio.node.core.rpc.services import Services
from disque_trio.node.core.shared.versions import (
    DELETED_TTL,
    MAX_AHEAD,
    Entry,
    SharedError,
    V,
    Versions,
)
from disque_trio.protocol.bus import PacketError
from disque_trio.protocol.fields import (
    Field,
    FieldsError,
    pack_fields,
    pack_number,
    unpack_fields,
    unpack_number,
)
from disque_trio.resp.inline import quote
from disque_trio.resp.reply import OK, error, integer
from disque_trio.respserver.client import Client, Pending
from disque_trio.respserver.machine import LONGEST_REST

COMPARE_EVERY: Final = 5_000  # ms
# ms after which a node that has compared with one to which the connection is new does so once more:
# with another new one, or with the same, which may not have been able to answer yet.
ONCE_MORE: Final = 500
MOST_SOON: Final = 2  # nodes to compare with once more
MOST_ANSWERS: Final = 8  # all that a node knows, of one kind, is told to so many nodes
ANSWERS_PERIOD: Final = 1_000  # ms, in this time: when it returns, all others compare with it
LATEST: Final = 86_400_000  # ms by which something may be done in the future: clocks differ
WARN_EVERY: Final = 60_000  # ms
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


class SharedMaps:
    """All kinds of things shared by name between the nodes of a cluster, as known to one node.

    Args:
        peers: the rest of the cluster.

    Attributes:
        kinds: their ``Sharing``, by the type of its packets.
        unsettled: functions to call at the end of the turn.
    """

    def __init__(self, peers: Peers) -> None:
        self.kinds: dict[int, Sharing[Any]] = {}
        self.unsettled: list[Callable[[], None]] = []
        self._peers = peers
        self._soon: list[tuple[int, bytes]] = []  # when to compare once more with which nodes

    def settle(self) -> None:
        """Carry out the changes of this turn."""
        while self.unsettled:
            self.unsettled.pop(0)()

    def linked_to(self, nodes: list[bytes], now: int) -> None:
        """Compare at ``now`` with one of ``nodes``, to which connections are new, and soon with
        another one."""
        kinds = self._known()
        new = [id for id in reached(self._peers) if id in nodes]
        if not (kinds and new) or len(self._soon) >= MOST_SOON:
            return
        # The members of a large cluster must not all begin with the same one.
        first = kinds[0].turn
        self._soon.append((now + ONCE_MORE, new[(first + 1) % len(new)]))
        for kind in kinds:
            kind.compare(new[first % len(new)])

    def _known(self) -> "list[Sharing[Any]]":
        """What this node knows anything of."""
        return [kind for kind in self.kinds.values() if kind.knows_any()]

    def cron(self, now: int) -> None:
        """Compare with other nodes."""
        kinds = self._known()
        if not kinds:
            return
        others = reached(self._peers)
        soon = self._soon
        due = [id for at, id in soon if not now < at <= now + ONCE_MORE]
        if due:
            self._soon = [(at, id) for at, id in soon if now < at <= now + ONCE_MORE]
        for kind in kinds:
            for id in due:
                kind.compare(id)
            kind.cron(now, others)

    def rest(self) -> int:
        """Return how long ``cron`` may be put off, in ms."""
        if self._soon:
            return ONCE_MORE
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
        undone: called if it could not be written, when ``old`` is back.
    """

    __slots__ = ("done", "entry", "old", "undone")

    def __init__(
        self,
        client: Client,
        done: bytes,
        entry: Entry[V],
        old: Entry[V] | None,
        undone: Callable[[], None],
    ) -> None:
        super().__init__(client, None)
        self.done = done
        self.entry = entry
        self.old = old
        self.undone = undone


class Sharing(Generic[V]):
    """Sends what one node knows to other nodes and to disk, and takes what it hears.

    Args:
        what: its name, for errors: ``policies``.
        type: of the packets.
        known: what this node knows.
        shared_maps: what it becomes part of.

    Attributes:
        keep: writes what is known of these names to disk at once; returns why that failed, or
            None.
        changed: called when something else changed that has to be on disk, with its names; None:
            everything may have.
        on_change: called with the names of what has changed.
        warn: called at most once a minute with what is odd about what another node told, and the
            details.
        refused: number of changes by other nodes that were not taken.
        skipped: number of lines of its file that could not be read.
        turn: number of comparisons so far, and some more, so that not all nodes begin with the same
            one.
    """

    def __init__(
        self, what: str, type: int, services: Services, known: Versions[V], shared_maps: SharedMaps
    ) -> None:
        self.keep: Callable[[list[bytes]], str | None] = _no_disk
        self.changed: Callable[[list[bytes] | None], None] = _nobody
        self.on_change: Callable[[list[bytes]], None] = _nothing
        self.warn: Callable[[str, str], None] = _silent
        self.refused = 0
        self.skipped = 0
        self._warned: dict[str, int] = {}  # when it was last warned of what
        self._open: list[Change[V]] = []  # the changes of this turn
        self._unsettled = shared_maps.unsettled
        shared_maps.kinds[type] = self
        self._what = what
        self._type = type
        self._machine = services.machine
        self._known = known
        self._peers = services.peers
        self._packets = services.packets
        self._compare_at = 0
        self.turn = sum(services.packets.id)
        self._answers = 0  # in the period that began then
        self._answers_from = 0

    # ---- local changes -------------------------------------------------------------------------

    def set(
        self,
        client: Client,
        name: bytes,
        value: V | None,
        reached: int = 0,
        reply: bytes = OK,
        undone: Callable[[], None] | None = None,
    ) -> None:
        """Set the value of ``name`` here and everywhere (None: delete it, whether this node knows
        one or not); ``client`` gets ``reply`` at the end of the turn. ``undone`` is called instead
        of ``on_change`` if it could not be written, and the last value counts again.

        Raises:
            SharedError: it is refused.
        """
        entry = self._known.make(name, value, self._packets.id, self._machine.now)
        entry.reached = reached
        old = self._known.entries.get(name)
        if value is not None:
            self._known.check(name, value, len(entry.packed) - (len(old.packed) if old else 0))
        if not self._known.put(entry):
            raise SharedError(f"a later change of the {self._what} is known")
        if undone is None:
            undone = partial(self._changed_back, [name])
        change = Change(client, reply, entry, old, undone)
        client.line_up(change)
        if not self._open:
            self._unsettled.append(self._settle)
        self._open.append(change)
        self.on_change([name])

    def delete(self, client: Client, name: bytes) -> bool:
        """Delete the entry with exactly this name; ``client`` gets its reply at the end of the
        turn.
        False: there is none."""
        if self._known.named(name) is None:
            return False
        self.set(client, name, None, reply=integer(1))
        return True

    def reach(self, name: bytes, time: int) -> None:
        """Tell all nodes that ``name`` is done up to ``time`` (ms since the epoch)."""
        entry = self._known.entries.get(name)
        if entry is None or not self._known.reach(entry, time):
            return
        self.changed([name])
        self.on_change([name])
        value = [(_NAME, name), (_TIME, pack_number(time))]
        value += [(_CLOCK, pack_number(entry.clock)), (_NODE, entry.node)]
        packet = self._packets.fields(self._type, [(_REACHED, pack_fields(value))])
        for id in reached(self._peers):
            self._peers.send(id, packet)

    def _settle(self) -> None:
        """Write the changes of this turn to disk, all at once, and release their replies. If that
        fails, undo them."""
        changes, self._open = self._open, []
        names = [change.entry.name for change in changes]
        problem = self.keep(names)
        if problem:
            refusal = error(f"ERR the {self._what} cannot be written to the disk: {problem}")
            for change in reversed(changes):
                if self._known.undo(change.entry, change.old):
                    change.undone()
                change.reply = refusal
        else:
            for change in changes:
                change.reply = change.done
            entries = [change.entry for change in changes]
            for id in reached(self._peers):
                self._tell(id, entries, [])
        self._machine.answered += changes

    def _changed_back(self, names: list[bytes]) -> None:
        self.on_change(names)

    def clear(self) -> None:
        """Forget everything, without telling other nodes."""
        names = list(self._known.entries)
        self._known.clear()
        self.changed(None)
        self.on_change(names)

    # ---- other nodes ---------------------------------------------------------------------------

    def size(self) -> int:
        """Return the bytes of what is known."""
        return self._known.size

    def strange(self) -> int:
        """Return how much is known that only newer releases know completely."""
        return self._known.strange

    def knows_any(self) -> bool:
        """Whether there is anything to compare."""
        return len(self._known.entries) > 0

    def compare(self, id: bytes) -> None:
        """Compare with the node ``id``."""
        asked = (_ASKED, pack_number(self._known.digest))
        self._peers.send(id, self._packets.fields(self._type, [asked]))

    def cron(self, now: int, others: list[bytes]) -> None:
        """Compare with another one of ``others`` every few seconds, and forget old deletions."""
        if now < self._compare_at <= now + COMPARE_EVERY:
            return
        self._compare_at = now + COMPARE_EVERY
        if self._known.forget_deleted(now - DELETED_TTL):
            self.changed(None)
        if others:
            self.turn += 1
            self.compare(others[self.turn % len(others)])

    def rest(self) -> int:
        """Return how long ``cron`` may be put off, in ms."""
        if not self._known.entries or self._peers.size <= 1:
            return LONGEST_REST
        return max(1, min(COMPARE_EVERY, self._compare_at - self._machine.now))

    def on_packet(self, sender: bytes, fields: list[Field]) -> None:
        """Handle a packet of ``sender``. Raises ``PacketError``; then nothing has changed. Changes
        that no node may have, or not yet, are left out; the others count."""
        known = self._known
        entries: list[Entry[V]] = []
        reached: list[dict[int, bytes]] = []
        asked = told = -1
        try:
            for type, value in fields:
                if type == _ENTRY:
                    self._add(entries, value)
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
        if asked >= 0 and asked != digest and self._may_answer():
            self._tell(sender, list(known.entries.values()), [(_TOLD, pack_number(digest))])
        elif told >= 0 and told != digest:
            self._tell(sender, list(known.entries.values()), [])

    def _add(self, entries: list[Entry[V]], data: bytes) -> None:
        """Add the entry in ``data`` to ``entries``, unless it is to be left out. Raises
        ``FieldsError``."""
        try:
            entry = self._known.read_entry(data)
        except SharedError as problem:
            self._refuse(str(problem))
            return
        if entry.clock > self._known.clock + MAX_AHEAD:
            # It may be damaged, and would end all changes by clients.
            self._refuse(f"the logical clock of {quote(entry.name).decode()} is too far ahead")
            return
        entries.append(entry)

    def _refuse(self, why: str) -> None:
        self.refused += 1
        self._warn(f"a change of the {self._what} that another node told was not taken", why)

    def _warn(self, what: str, details: str) -> None:
        now = self._machine.now
        last = self._warned.get(what)
        if last is None or not last <= now < last + WARN_EVERY:
            self._warned[what] = now
            self.warn(what, details)

    def _may_answer(self) -> bool:
        """Whether to tell another node all that is known, as too few have been told lately."""
        now = self._machine.now
        if not self._answers_from <= now < self._answers_from + ANSWERS_PERIOD:
            self._answers_from = now
            self._answers = 0
        self._answers += 1
        return self._answers <= MOST_ANSWERS

    def _take(self, entries: list[Entry[V]], reached: list[dict[int, bytes]]) -> None:
        """Take over what is newer."""
        now = self._machine.now
        changed: list[bytes] = []
        for entry in entries:
            if entry.is_deletion():
                if entry.deleted < now - DELETED_TTL:
                    continue
                entry.deleted = min(entry.deleted, now)  # a future time would keep it too long
            if entry.reached > now + LATEST:
                entry.reached = now
            if self._known.put(entry):
                changed.append(entry.name)
                if entry.strange:
                    self._warn(
                        f"the {self._what} have something that only a newer release knows",
                        quote(entry.name).decode(),
                    )
        for found in reached:
            old = self._known.entries.get(found.get(_NAME, b""))
            if (
                old is not None
                and old.clock == unpack_number(found[_CLOCK])
                and old.node == found.get(_NODE)
                and unpack_number(found[_TIME]) <= now + LATEST
                and self._known.reach(old, unpack_number(found[_TIME]))
            ):
                changed.append(old.name)
        if changed:
            self.changed(changed)
            self.on_change(changed)

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


def reached(peers: Peers) -> list[bytes]:
    """The ids of the nodes that take what is shared, and can be reached now."""
    return [id for id in peers.everyone() if peers.understands(id) and peers.linked(id)]


def _no_disk(names: list[bytes]) -> str | None:
    return None


def _nobody(names: list[bytes] | None) -> None:
    pass


def _nothing(names: list[bytes]) -> None:
    pass


def _silent(what: str, details: str) -> None:
    pass
