"""Decides which nodes may talk to this one, by their keys (cluster-identity).

A node whose id is pinned has to show that key, for good. Another one gets in
- if it answers where CLUSTER MEET on this node named (and with the key, if one was given),
- if it comes itself from the address that CLUSTER MEET named, with the key that it named,
- if a node that this one trusts introduces it,
- if it is a member from the time before identities were used, or
- if it is the first to meet this node, which knows nobody yet.
Where keys are optional, any other one gets in, too, as it would without its key, and is pinned once
it is a member. An expelled key never gets in. Nodes that trust each other tell each other all pins
and expulsions; only CLUSTER READMIT on a node itself makes it take an expelled key again.
"""

from collections.abc import Callable

from disque_trio.cluster.keyring import (
    BY_FIRST,
    BY_MEET,
    BY_MEMBER,
    Keyring,
    read_keys,
)
from disque_trio.cluster.links import Link
from disque_trio.cluster.members import Member, Members, is_node_id
from disque_trio.protocol.bus import KEYS, NODE_HANDSHAKE, PacketWriter

MOST_LINES = 10  # of the log, about what one packet changes


class Trust:
    """The keys of this node and of others.

    Args:
        key: the public key of this node.
        keyring: of the others.
        packets: makes this node's packets, and has its id.
        members: the other nodes.

    Attributes:
        key, keyring: as given.
        required: nodes that show no identity are refused.
        refused: packets and nodes that were refused because of their identity.
        close_links: closes the links of nodes with some keys, or, if there are none, of all nodes.
        tell: logs a text about a node, by id and key.
        accuse: logs what a node did, once for each text, id and key.
        stored: called when the keyring has changed and should be written.
        forget: called with the id of a member whose key is expelled.
        is_forgotten: whether a node id must not come back for now (CLUSTER FORGET).
    """

    def __init__(
        self, key: bytes, keyring: Keyring, packets: PacketWriter, members: Members
    ) -> None:
        self.key = key
        self.keyring = keyring
        self.required = False
        self.refused = 0
        self.close_links: Callable[[set[bytes]], None] = _ignore_all
        self.tell: Callable[[str, bytes, bytes], None] = _tell_nobody
        self.accuse: Callable[[str, bytes, bytes], None] = _tell_nobody
        self.stored: Callable[[], None] = _nobody
        self.forget: Callable[[bytes], None] = _ignore
        self.is_forgotten: Callable[[bytes], bool] = _never
        self._packets = packets
        self._members = members

    # ---- handshakes of links --------------------------------------------------------------------

    def judge(self, link: Link, id: bytes, key: bytes) -> str:
        """Why the node ``id`` with ``key`` may not talk to this one over ``link``; empty: it may.
        It has yet to prove that it has the key."""
        keyring = self.keyring
        if not is_node_id(id):
            return "it shows no valid node id"
        if id == self._packets.id:
            return "" if key == self.key else "it shows this node's id with another key"
        if keyring.is_expelled(key):
            return f"its key {key.hex()} is expelled"
        member = self._members.owner(link) if link.outgoing else None
        if member is not None and member.key and member.key != key:
            return f"its key {key.hex()} is not the one that CLUSTER MEET named"
        pinned = keyring.key_of(id)
        if pinned:
            return "" if pinned == key else f"its key {key.hex()} is not the one of the node"
        if keyring.full:
            return "too many keys are known here: CLUSTER RESET forgets those of all nodes"
        if _may_be(member, id):
            return ""
        if id in self._members.known or self._is_alone() or self._is_awaited(link):
            return ""
        if not self.required and (member is None or not member.meeting):
            return ""  # without its key it would be taken: a node without identity introduced it
        return (
            f"its key {key.hex()} is unknown here; CLUSTER MEET on a member, naming that node, "
            "lets it in"
        )

    def proved(self, link: Link) -> None:
        """Note that the other side of ``link`` has proved its id and key."""
        member = self._members.owner(link) if link.outgoing else None
        if link.peer == self._packets.id:
            return
        if _may_be(member, link.peer):
            self._pin(link, BY_MEET)
        elif link.peer in self._members.known:
            self._pin(link, BY_MEMBER)

    def met(self, link: Link, port: int) -> bool:
        """Handle the MEET of a node with this ``port`` for clients that is no member. Returns
        whether to meet it, too."""
        if not link.peer:
            return not self.required
        awaited = self._members.under_way(link.remote_ip, port)
        # Any process at that address can say that it has the port. Unless CLUSTER MEET named the
        # key, only who answers there, to this node's own attempt, is let in.
        if awaited is not None and awaited.meeting and awaited.key == link.key:
            self._pin(link, BY_MEET)
        elif self._is_alone():
            self._pin(link, BY_FIRST)
        return self.trusts(link) or not (self.required or self.keyring.is_expelled(link.key))

    def trusts(self, link: Link) -> bool:
        """Whether the other side of ``link`` has proved to be a node whose key is pinned, and not
        expelled."""
        keyring = self.keyring
        pinned = bool(link.peer) and keyring.key_of(link.peer) == link.key
        return pinned and not keyring.is_expelled(link.key)

    def bars(self, id: bytes) -> bool:
        """Whether the node ``id``, which showed no identity, is expelled."""
        key = self.keyring.key_of(id)
        return bool(key) and self.keyring.is_expelled(key)

    def _is_awaited(self, link: Link) -> bool:
        """Whether CLUSTER MEET named the address of the other side of ``link``."""
        return not link.outgoing and any(
            member.meeting and member.ip == link.remote_ip
            for member in self._members.handshakes.values()
        )

    def _is_alone(self) -> bool:
        """Whether this node has nothing to do with any other one that is not expelled."""
        members, keyring = self._members, self.keyring
        return (
            not members.known
            and all(keyring.is_expelled(pin.key) for pin in keyring.pins.values())
            and not any(member.meeting for member in members.handshakes.values())
        )

    def _pin(self, link: Link, by: bytes) -> None:
        if self.keyring.pin(link.peer, link.key, by):
            self.tell("a node is known by its key from now on", link.peer, link.key)
            self._changed([link.peer], [])

    # ---- between nodes --------------------------------------------------------------------------

    def inform(self, link: Link) -> None:
        """Tell the node at the other side of ``link`` all keys."""
        if self.trusts(link):
            link.send(self._packets.packet(KEYS, self.keyring.data()))

    def _changed(self, ids: list[bytes], keys: list[bytes]) -> None:
        """Store the changed keyring, and tell all what is new: the pins of the nodes ``ids``, and
        that ``keys`` are expelled."""
        self.stored()
        packet = self._packets.packet(KEYS, self.keyring.data_about(ids, keys))
        for id in self._members.everyone:
            link = self._members.known[id].link
            if link is not None and self.trusts(link):
                link.send(packet)

    def hear(self, link: Link, packet: bytes) -> None:
        """Handle a KEYS. Raises ``PacketError``."""
        if not self.trusts(link):
            return
        message = read_keys(packet)
        ids = self._hear_pins(link, message.pins)
        keys, expelled = self._hear_versions(link, message.versions)
        if expelled:
            self._enforce(expelled)
        if ids or keys:
            self._changed(ids, keys)

    def _hear_pins(self, link: Link, pins: list[tuple[bytes, bytes]]) -> list[bytes]:
        """Take the keys of nodes from the other side of ``link``. Return the ids of those whose
        keys were not known."""
        found: list[bytes] = []
        for id, key in pins:
            if id == self._packets.id or self.is_forgotten(id):
                continue
            if self.keyring.pin(id, key, link.peer):
                found.append(id)
        if len(found) > MOST_LINES:
            self.tell(f"{len(found)} nodes were introduced by this one", link.peer, link.key)
        else:
            for id in found:
                self.tell("a node was introduced", id, self.keyring.key_of(id))
        return found

    def _hear_versions(
        self, link: Link, versions: list[tuple[bytes, int]]
    ) -> tuple[list[bytes], list[bytes]]:
        """Take from the other side of ``link`` which keys are expelled. Return those of which that
        is new, and which of these were not expelled before."""
        found: list[bytes] = []
        expelled: list[bytes] = []
        for key, version in versions:
            if key == self.key:
                if version & 1:
                    self.accuse("this node is expelled: another one says so", link.peer, link.key)
                continue
            was_expelled = self.keyring.is_expelled(key)
            if self.keyring.hear(key, version):
                found.append(key)
                if not was_expelled:
                    expelled.append(key)
        if len(expelled) > MOST_LINES:
            self.tell(f"{len(expelled)} keys are expelled, says this node", link.peer, link.key)
        else:
            for key in expelled:
                self._tell_expelled(key)
        return found, expelled

    # ---- for CLUSTER ----------------------------------------------------------------------------

    def expel(self, key: bytes) -> None:
        """Expel ``key`` from the cluster."""
        self.keyring.decide(key, True)
        self._tell_expelled(key)
        self._enforce([key])
        self._changed([], [key])

    def readmit(self, key: bytes) -> bool:
        """Undo ``expel``, on this node only; the node has to be met again. Returns False if that
        cannot be undone any more."""
        if not self.keyring.decide(key, False):
            return False
        self.tell("a key is no longer expelled", b",".join(self.keyring.ids_of(key)), key)
        self.stored()
        return True

    def _tell_expelled(self, key: bytes) -> None:
        self.tell("a key is expelled", b",".join(self.keyring.ids_of(key)[:MOST_LINES]), key)

    def _enforce(self, keys: list[bytes]) -> None:
        """Part with the nodes that have ``keys``, which are expelled."""
        for key in keys:
            for id in self.keyring.ids_of(key):
                self.forget(id)
        self.close_links(set(keys))

    def drop(self, id: bytes) -> bool:
        """Forget the key of the node ``id``, which is to be forgotten, unless that is expelled.
        Returns whether that was done."""
        key = self.keyring.key_of(id)
        if not key or self.keyring.is_expelled(key):
            return False
        self.keyring.unpin(id)
        self.close_links({key})
        self.stored()
        return True

    def reset(self) -> None:
        """Forget all nodes, except for the expelled ones; this node may have another id."""
        self.keyring.clear()
        self.close_links(set())
        self.stored()

    def unpinned(self) -> int:
        """The number of members whose keys are not known."""
        return sum(not self.keyring.key_of(id) for id in self._members.everyone)


def _may_be(member: Member | None, id: bytes) -> bool:
    """Whether CLUSTER MEET lets the node ``id``, which answers on the link to ``member``, in."""
    if member is None or not member.meeting:
        return False
    return member.flags & NODE_HANDSHAKE != 0 or member.id == id


def _ignore(subject: bytes) -> None:
    pass


def _ignore_all(keys: set[bytes]) -> None:
    pass


def _tell_nobody(text: str, id: bytes, key: bytes) -> None:
    pass


def _nobody() -> None:
    pass


def _never(id: bytes) -> bool:
    return False
