"""What other nodes say: packets of the bus, and what they change in the table of nodes.

MEET, PING, PONG and FAIL are about nodes and end here. All else is handed on, if it comes from a
member.
"""

from disque_trio.cluster.addresses import is_port, plain_ip, told_ip, usefulness
from disque_trio.cluster.failure import FAILING, mark_down
from disque_trio.cluster.heartbeat import Heartbeat
from disque_trio.cluster.links import Link
from disque_trio.cluster.members import Member, is_node_id
from disque_trio.protocol.bus import (
    FAIL,
    MEET,
    NODE_FAIL,
    NODE_HANDSHAKE,
    NODE_LEAVING,
    NODE_MEET,
    NODE_NOADDR,
    PAUSE,
    PONG,
    VERSION,
    Gossip,
    PacketError,
    packet_sender,
    packet_type,
    read_fail,
    read_gossip,
    sender_address,
    sender_flags,
)

MAX_HANDSHAKES = 100  # that other nodes may cause at a time


class Hearing(Heartbeat):
    """The reactions to packets. See ``Membership``, which is all of it."""

    # ---- for the driver: packets ----------------------------------------------------------------

    def receive(self, link: Link, packet: bytes, now: int) -> None:
        """One whole ``packet`` came over ``link``."""
        self._pass_time(now)
        self.messages_received += 1
        if packet[8] << 8 | packet[9] != VERSION:
            return
        type = packet_type(packet)
        sender = packet_sender(packet)
        try:
            if type <= MEET:
                self._hear(link, type, sender, packet)
            elif sender not in self._known or type > PAUSE:
                pass
            elif type == FAIL:
                self._hear_verdict(read_fail(packet))
            else:
                self.deliver(sender, packet, now)
        except PacketError:
            self.malformed += 1

    def _hear(self, link: Link, type: int, sender: bytes, packet: bytes) -> None:
        """A PING, PONG or MEET."""
        entries = read_gossip(packet)
        if not is_node_id(sender):
            self.malformed += 1
            return
        itself = sender == self.packets.id  # through a loop, or somebody copied its nodes.conf
        if type != PONG:
            if not itself:
                self._learn_own_ip(link.local_ip, type)
                if type == MEET and sender not in self._known:
                    self._greet(link, packet)
            # A stranger that was forgotten but goes on pinging must not hear of nodes that it does
            # not know: it would meet them, and through them come back.
            gossip = type == MEET or sender in self._known
            self._tell(link, PONG, sender, gossip)
        member = self._members.owner(link)
        if member is not None and not self._identify(member, link, sender, packet):
            return
        known = self._known.get(sender)
        if known is None:
            return
        if type != PONG:
            self._follow(known, link, packet)
        elif member is known:
            self._hear_pong(known)
        if (known.flags ^ sender_flags(packet)) & NODE_LEAVING:
            known.flags ^= NODE_LEAVING
            self._update()
        self._hear_gossip(known, entries)

    def _learn_own_ip(self, ip: str, type: int) -> None:
        """The address that another node used for this one.

        A MEET counts more than a PING, as C nodes have it, and both more than what was so before
        the node was restarted. But an address that only this machine can use does not replace one
        that all can: clients get it from HELLO.
        """
        ip = plain_ip(ip)
        better = usefulness(ip) - usefulness(self.ip)
        if better > 0 or (better == 0 and (type == MEET or self._ip_from_file)):
            self._ip_from_file = False
            if ip != self.ip:
                self.ip = ip
                self._update()  # and which nodes are on this host

    def _greet(self, link: Link, packet: bytes) -> None:
        """A stranger sent a MEET: meet it, too."""
        ip, port = _address(link, packet)
        if len(self._members.handshakes) < MAX_HANDSHAKES:
            self._begin_handshake(ip, port, 0)

    def _identify(self, member: Member, link: Link, sender: bytes, packet: bytes) -> bool:
        """``sender`` spoke on the link to ``member``. Returns whether that is as it should be."""
        if not member.flags & NODE_HANDSHAKE:
            if member.id == sender:
                return True
            # Another node is at that address now. This one will say where it is when it pings.
            self._unlink(member)
            member.flags |= NODE_NOADDR
            member.ip = ""
            member.port = 0
            self._update()
            return False
        known = self._known.get(sender)
        if known is not None:
            if not member.hearsay or not known.connected() or known.flags & FAILING:
                self._follow(known, link, packet)
        elif sender != self.packets.id and not (
            member.hearsay and self._blacklist.has(sender, self._time)
        ):
            self._members.admit(member, sender)
            self._update()
            return True
        self._members.remove(member)
        return False

    def _hear_pong(self, member: Member) -> None:
        member.pong_received = self._time
        member.ping_sent = 0
        member.attempts = 0
        if member.flags & FAILING:
            was_down = member.flags & NODE_FAIL
            member.flags &= ~FAILING
            self._update(was_down != 0)
        member.flags &= ~NODE_MEET

    def _follow(self, member: Member, link: Link, packet: bytes) -> None:
        """``member`` opened ``link``: if that shows another address than the known one, use it."""
        ip, port = _address(link, packet)
        if usefulness(ip) < usefulness(member.ip) and port == member.port and member.connected():
            return  # it is on this machine, and was met by an address that others can use, too
        self._move(member, link, ip, port)

    def _move(self, member: Member, link: Link, ip: str, port: int) -> None:
        if member.link is link or (ip == member.ip and port == member.port):
            return
        if ip and is_port(port):
            member.ip = ip
            member.port = port
            member.flags &= ~NODE_NOADDR
            self._unlink(member)
            self._update()

    def _hear_gossip(self, sender: Member, entries: list[Gossip]) -> None:
        for entry in entries:
            if entry.id == self.packets.id or entry.id == sender.id:
                continue
            member = self._known.get(entry.id)
            if member is None:
                if not (
                    entry.flags & (NODE_NOADDR | NODE_HANDSHAKE)
                    or not is_node_id(entry.id)
                    or self._blacklist.has(entry.id, self._time)
                ):
                    self._hear_address(entry)
                continue
            if entry.flags & FAILING:
                member.reports[sender.id] = self._time
                self._judge(member)
            elif member.reports:
                member.reports.pop(sender.id, None)
            if member.flags & (FAILING | NODE_NOADDR):
                # It may be well, at another address: whoever answers there says who it is.
                self._hear_address(entry, member)

    def _hear_address(self, entry: Gossip, member: Member | None = None) -> None:
        if member is not None and entry.ip == member.ip and entry.port == member.port:
            return
        if len(self._members.handshakes) < MAX_HANDSHAKES:
            self._begin_handshake(told_ip(entry.ip), entry.port, NODE_MEET, hearsay=True)

    def _hear_verdict(self, id: bytes) -> None:
        """A FAIL came: most nodes have lost the node ``id``."""
        member = self._known.get(id)
        if member is not None and not member.flags & NODE_FAIL:
            mark_down(member)
            self._update()


def _address(link: Link, packet: bytes) -> tuple[str, int]:
    """Where the sender of ``packet`` can be reached: ip (maybe empty) and port of its clients.

    What it announces counts more than what the connection shows, which may have been through a
    translator of addresses. C nodes announce nothing.
    """
    announced, port = sender_address(packet)
    return (told_ip(announced) if announced else "") or plain_ip(link.remote_ip), port
