"""Handles MEET, PING, PONG and FAIL packets and updates the table of nodes."""

from collections.abc import Callable
from typing import Final

from disque_trio.cluster.blacklist import Blacklist
from disque_trio.cluster.failure import FAILING, mark_down
from disque_trio.cluster.heartbeat import Heartbeat
from disque_trio.cluster.links import Link
from disque_trio.cluster.members import Member, Members, is_node_id
from disque_trio.cluster.myself import Myself
from disque_trio.cluster.trust import Trust
from disque_trio.process.addresses import is_port, plain_ip, told_ip, usefulness
from disque_trio.protocol.bus import (
    GOSSIP_SIZE,
    HEADER_SIZE,
    MEET,
    NODE_FAIL,
    NODE_HANDSHAKE,
    NODE_LEAVING,
    NODE_MEET,
    NODE_NOADDR,
    PONG,
    Gossip,
    PacketError,
    check_gossip,
    entry_flags,
    read_entry,
    read_fail,
    sender_address,
    sender_extensions,
    sender_flags,
    sender_process,
    sender_tls_port,
    sender_trouble,
)
from disque_trio.protocol.serialjob import NODE_ID_LENGTH

_NEWS: Final = FAILING | NODE_NOADDR
MAX_HANDSHAKES = 100  # at a time, caused by other nodes


class PacketHandlers:
    """The handlers of packets about nodes.

    Args:
        me: this node.
        members: the other nodes.
        heartbeat: links to them.
        blacklist: those that must not come back.
        acquainted: called with a member that has pinged this node for the first time, or answers
            over a new link; and whether it is the latter.

    Attributes:
        trust: the keys of nodes; None: nodes show no identity.
    """

    def __init__(
        self,
        me: Myself,
        members: Members,
        heartbeat: Heartbeat,
        blacklist: Blacklist,
        acquainted: Callable[[Member, bool], None],
    ) -> None:
        self._me = me
        self._members = members
        self._known = members.known  # always the same dict
        self._heartbeat = heartbeat
        self._blacklist = blacklist
        self._acquainted = acquainted
        self.trust: Trust | None = None

    def handle_ping(self, link: Link, type: int, sender: bytes, packet: bytes) -> None:
        """Handle a PING, PONG or MEET. Raises ``PacketError``."""
        check_gossip(packet)
        if not is_node_id(sender):
            raise PacketError("the sender has no id")
        trust = self.trust
        if trust is not None and not link.peer and trust.bars(sender):
            return
        itself = sender == self._me.packets.id  # through a loop, or a copy of its nodes.conf
        if type != PONG:
            if not itself:
                if self._me.learn(link.local_ip, type == MEET):
                    self._members.update()  # also which nodes are on this host
                if type == MEET and sender not in self._known and not self._greet(link, packet):
                    link.close()
                    return
            # A stranger that was forgotten but goes on pinging must not hear of nodes that it does
            # not know: it would meet them, and come back through them.
            gossip = type == MEET or sender in self._known
            self._heartbeat.tell(link, PONG, sender, gossip)
        member = self._members.owner(link)
        if member is not None and not self._identify(member, link, sender, packet):
            return
        known = self._known.get(sender)
        if known is None:
            return
        if trust is not None and link.peer and not (trust.required or trust.trusts(link)):
            trust.proved(link)  # it was no member yet when it did that
        known.owes_since = 0
        if type != PONG:
            known.pings_over = link
            known.meeting = False  # only who knows this node, or is about to, pings it
            self._follow(known, link, packet)
            self._heartbeat.link_back(known)
            if not known.pinged:
                known.pinged = True
                self._acquainted(known, False)
        elif member is known:
            link.answered = True
            self._hear_pong(known)
        if (known.flags ^ sender_flags(packet)) & NODE_LEAVING:
            known.flags ^= NODE_LEAVING
            self._members.update()
        extensions = sender_extensions(packet)
        trouble = sender_trouble(packet)
        if known.extensions != extensions or known.trouble != trouble:
            known.extensions = extensions
            known.trouble = trouble
            self._members.update(False)
        known.tls_port = sender_tls_port(packet)
        known.process = sender_process(packet)
        self._hear_gossip(known, packet)

    def _greet(self, link: Link, packet: bytes) -> bool:
        """Respond to the MEET of an unknown node by meeting it, too. Returns False if its key does
        not allow that."""
        ip, port = _address(link, packet)
        if self.trust is not None and not self.trust.met(link, port):
            return False
        if len(self._members.handshakes) < MAX_HANDSHAKES:
            self._heartbeat.begin_handshake(ip, port, 0)
        return True

    def _identify(self, member: Member, link: Link, sender: bytes, packet: bytes) -> bool:
        """Check which node answers on the link to ``member``. Return whether it is the expected
        one."""
        if not member.flags & NODE_HANDSHAKE:
            if member.id == sender:
                return True
            # Another node has that address now. The expected one will tell its own when it pings.
            self._heartbeat.unlink(member)
            member.flags |= NODE_NOADDR
            member.ip = ""
            member.port = 0
            self._members.update()
            return False
        known = self._known.get(sender)
        if known is not None:
            if not member.hearsay or not known.connected() or known.flags & FAILING:
                self._follow(known, link, packet)
            if member.meeting:
                known.meeting = True  # it may have forgotten this node
                known.since = member.since
                known.key = member.key
                self._heartbeat.watch(known)
        elif sender != self._me.packets.id and not (
            member.hearsay and self._blacklist.has(sender, self._heartbeat.time)
        ):
            self._members.admit(member, sender)
            self._heartbeat.watch(member)
            return True
        self._members.remove(member)
        return False

    def _hear_pong(self, member: Member) -> None:
        """Note that ``member`` answered."""
        member.pong_received = self._heartbeat.time
        member.ping_sent = 0
        member.attempts = 0
        if not member.answers:
            member.answers = True
            self._acquainted(member, True)
        if member.flags & FAILING:
            was_down = member.flags & NODE_FAIL
            member.flags &= ~FAILING
            self._members.update(was_down != 0)
        member.flags &= ~NODE_MEET
        self._heartbeat.watch(member)

    def _follow(self, member: Member, link: Link, packet: bytes) -> None:
        """Update the address of ``member`` if the ``link`` that it opened shows another one."""
        ip, port = _address(link, packet)
        if usefulness(ip) < usefulness(member.ip) and port == member.port and member.connected():
            return  # it is on this machine, and known by an address that others can use, too
        self._move(member, link, ip, port)

    def _move(self, member: Member, link: Link, ip: str, port: int) -> None:
        if member.link is link or (ip == member.ip and port == member.port):
            return
        if ip and is_port(port):
            member.ip = ip
            member.port = port
            member.flags &= ~NODE_NOADDR
            self._heartbeat.unlink(member)
            self._members.update()

    def _hear_gossip(self, sender: Member, packet: bytes) -> None:
        """Handle what ``sender`` says about third nodes."""
        for at in range(HEADER_SIZE, len(packet), GOSSIP_SIZE):
            member = self._known.get(packet[at : at + NODE_ID_LENGTH])
            if (
                member is not None
                and not (member.flags | entry_flags(packet, at)) & _NEWS
                and not member.reports
            ):
                continue  # mostly: it is well, as expected; no need to read the rest
            entry = read_entry(packet, at)
            if entry.id == self._me.packets.id or entry.id == sender.id:
                continue
            if member is None:
                if not (
                    entry.flags & (NODE_NOADDR | NODE_HANDSHAKE)
                    or not is_node_id(entry.id)
                    or self._blacklist.has(entry.id, self._heartbeat.time)
                ):
                    self._hear_address(entry)
                continue
            if entry.flags & FAILING:
                member.reports[sender.id] = self._heartbeat.time
                self._heartbeat.judge(member)
            elif member.reports:
                member.reports.pop(sender.id, None)
            if member.flags & (FAILING | NODE_NOADDR):
                # It may be well, at another address: the node that answers there says which it is.
                self._hear_address(entry, member)

    def _hear_address(self, entry: Gossip, member: Member | None = None) -> None:
        if member is not None and entry.ip == member.ip and entry.port == member.port:
            return
        if len(self._members.handshakes) < MAX_HANDSHAKES:
            self._heartbeat.begin_handshake(told_ip(entry.ip), entry.port, NODE_MEET, hearsay=True)

    def handle_fail(self, link: Link, type: int, sender: bytes, packet: bytes) -> None:
        """Handle FAIL: most nodes have lost a node. Raises ``PacketError``."""
        if sender not in self._known:
            return
        member = self._known.get(read_fail(packet))
        if member is not None and not member.flags & NODE_FAIL:
            mark_down(member)
            self._members.update()


def _address(link: Link, packet: bytes) -> tuple[str, int]:
    """The address of the sender of ``packet``: ip (maybe empty) and port for clients.

    The address that it announces takes precedence over that of the connection, which may have
    passed through address translation. C nodes announce nothing.
    """
    announced, port = sender_address(packet)
    return (told_ip(announced) if announced else "") or plain_ip(link.remote_ip), port
