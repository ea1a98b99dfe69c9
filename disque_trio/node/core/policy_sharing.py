"""Lets all nodes of a cluster know the same policies.

A change goes at once to all nodes that announce extensions. What gets lost on the way, and what a
node missed that was away, is found by comparing: every few seconds each node that knows a policy
tells another one, in turn, the digest of all it knows; one that reached nobody (it was started just
now, or cut off) does so as soon as it reaches somebody. Where that differs, the other one sends
all it has, and gets what it lacks in return.
"""

from collections.abc import Callable
from typing import Final

from disque_trio.cluster.peers import Peers
from disque_trio.node.core.policies import (
    DELETED_TTL,
    MAX_CLOCK,
    MAX_PATTERNS,
    MAX_POLICIES,
    MAX_SIZE,
    Entry,
    Policies,
    Policy,
    read_entry,
)
from disque_trio.node.core.policy_words import PolicyError
from disque_trio.protocol import bus
from disque_trio.protocol.bus import PacketError, PacketWriter
from disque_trio.protocol.fields import Field, FieldsError, pack_number, unpack_number
from disque_trio.resp.reply import OK, error, integer
from disque_trio.respserver.client import Client, Pending
from disque_trio.respserver.machine import LONGEST_REST, Machine

COMPARE_EVERY: Final = 5_000  # ms
LOOK_EVERY: Final = 1_000  # ms, of a node that reaches nobody, or has just found the first one
_PACKET: Final = 256 * 1024  # bytes of policies in one packet, about

# Types of the fields of POLICIES.
_ENTRY: Final = 1
_ASKED: Final = 2  # the digest of the sender, which wants to know what it lacks
_TOLD: Final = 3  # the digest of the sender, which has told all it knows


class Change(Pending):
    """The pending reply to a change that a client makes.

    Attributes:
        done: the reply if the change is on the disk.
        entry: the change. old: what was there before.
    """

    __slots__ = ("done", "entry", "old")

    def __init__(self, client: Client, done: bytes, entry: Entry, old: Entry | None) -> None:
        super().__init__(client, None)
        self.done = done
        self.entry = entry
        self.old = old


class PolicySharing:
    """The policies of one node on their way to and from the others, and to the disk.

    Args:
        machine: whose time it is.
        policies: what this node knows.
        peers: the rest of the cluster.
        packets: makes this node's packets, and has its id.

    Attributes:
        open: the changes of this turn.
        keep: writes what is known to the disk at once; returns why that failed, or None.
        changed: called when what is to be on the disk has changed through another node.
    """

    def __init__(
        self, machine: Machine, policies: Policies, peers: Peers, packets: PacketWriter
    ) -> None:
        self.keep: Callable[[], str | None] = _no_disk
        self.changed: Callable[[], None] = _nobody
        self.open: list[Change] = []
        self._machine = machine
        self._policies = policies
        self._peers = peers
        self._packets = packets
        self._compare_at = 0
        self._alone = True  # no other node could be reached when the last cron ran
        self._turn = sum(packets.id)  # not all nodes begin with the same one

    # ---- what clients change -------------------------------------------------------------------

    def set(self, client: Client, policy: Policy) -> None:
        """Let ``policy`` hold, here and everywhere, for what its name says; ``client`` gets its
        reply at the end of the turn.

        Raises:
            PolicyError: there are too many.
        """
        policies = self._policies
        if policies.named(policy.name) is None:
            if policies.count >= MAX_POLICIES:
                raise PolicyError(
                    f"there are {MAX_POLICIES} policies already, which is the most: "
                    "use patterns, or QDEL some"
                )
            if policies.patterns >= MAX_PATTERNS and policy.is_pattern():
                raise PolicyError(
                    f"there are {MAX_PATTERNS} policies of patterns already, which is the most"
                )
        self._change(client, OK, policies.make(policy.name, policy, self._packets.id, 0))

    def delete(self, client: Client, name: bytes) -> bool:
        """Delete the policy of just this name; ``client`` gets its reply at the end of the turn.
        False: there is none."""
        policies = self._policies
        if policies.named(name) is None:
            return False
        entry = policies.make(name, None, self._packets.id, self._machine.now)
        self._change(client, integer(1), entry)
        return True

    def _change(self, client: Client, reply: bytes, entry: Entry) -> None:
        policies = self._policies
        old = policies.entries.get(entry.name)
        grows = len(entry.packed) - (0 if old is None else len(old.packed))
        if entry.policy is not None and grows > 0 and policies.size + grows > MAX_SIZE:
            raise PolicyError(f"all policies together would have more than {MAX_SIZE} bytes")
        if entry.clock > MAX_CLOCK or not policies.put(entry):
            raise PolicyError("the logical clock of the policies is at its end")
        change = Change(client, reply, entry, old)
        client.line_up(change)
        self.open.append(change)

    def settle(self) -> None:
        """Write the changes of this turn to the disk, all at once, and let their replies be known.
        If that fails they are taken back."""
        changes, self.open = self.open, []
        problem = self.keep()
        if problem:
            refusal = error(f"ERR the policies cannot be written to the disk: {problem}")
            for change in reversed(changes):
                self._policies.undo(change.entry, change.old)
                change.reply = refusal
        else:
            for change in changes:
                change.reply = change.done
            entries = [change.entry for change in changes]
            for id in self._others():
                self._tell(id, entries, [])
        self._machine.answered += changes

    def clear(self) -> None:
        """Forget all policies, and tell nobody."""
        self._policies.clear()
        self.changed()

    # ---- other nodes ---------------------------------------------------------------------------

    def _others(self) -> list[bytes]:
        peers = self._peers
        return [id for id in peers.everyone() if peers.understands(id) and peers.linked(id)]

    def cron(self, now: int) -> None:
        """Compare with another node every few seconds, and forget old deletions."""
        policies = self._policies
        if not policies.entries:
            return
        others = self._others()
        was_alone, self._alone = self._alone, not others
        joins = was_alone and not self._alone
        if not joins and now < self._compare_at <= now + COMPARE_EVERY:
            return
        # Who has just been found may not know this node yet, and drop what it says.
        self._compare_at = now + (LOOK_EVERY if joins else COMPARE_EVERY)
        if policies.forget_deleted(now - DELETED_TTL):
            self.changed()
        if others:
            asked = (_ASKED, pack_number(policies.digest))
            self._turn += 1
            other = others[self._turn % len(others)]
            self._peers.send(other, self._packets.fields(bus.POLICIES, [asked]))

    def rest(self) -> int:
        """How long (ms) ``cron`` may be put off."""
        if not self._policies.entries or self._peers.size <= 1:
            return LONGEST_REST
        if self._alone:
            return LOOK_EVERY
        return max(1, min(COMPARE_EVERY, self._compare_at - self._machine.now))

    def on_policies(self, sender: bytes, fields: list[Field]) -> None:
        """Handle POLICIES. Raises PacketError; nothing was taken over then."""
        entries: list[Entry] = []
        asked = told = -1
        try:
            for type, value in fields:
                if type == _ENTRY:
                    entries.append(read_entry(value))
                elif type == _ASKED:
                    asked = unpack_number(value)
                elif type == _TOLD:
                    told = unpack_number(value)
        except FieldsError as problem:
            raise PacketError(f"malformed policies: {problem}") from problem
        self._take(entries)
        digest = self._policies.digest
        if asked >= 0 and asked != digest:
            everything = list(self._policies.entries.values())
            self._tell(sender, everything, [(_TOLD, pack_number(digest))])
        elif told >= 0 and told != digest:
            self._tell(sender, list(self._policies.entries.values()), [])

    def _take(self, entries: list[Entry]) -> None:
        """Take over what is newer."""
        now = self._machine.now
        changed = False
        for entry in entries:
            if entry.policy is None:
                if entry.deleted < now - DELETED_TTL:
                    continue
                entry.deleted = min(entry.deleted, now)  # or it would be kept for ever
            if self._policies.put(entry):
                changed = True
        if changed:
            self.changed()

    def _tell(self, node: bytes, entries: list[Entry], last: list[Field]) -> None:
        """Send ``entries`` to ``node``, and ``last`` behind them."""
        fields: list[Field] = []
        size = 0
        for entry in entries:
            data = entry.fields()
            fields.append((_ENTRY, data))
            size += len(data)
            if size >= _PACKET:
                self._peers.send(node, self._packets.fields(bus.POLICIES, fields))
                fields = []
                size = 0
        fields += last
        if fields:
            self._peers.send(node, self._packets.fields(bus.POLICIES, fields))


def _no_disk() -> str | None:
    return None


def _nobody() -> None:
    pass
