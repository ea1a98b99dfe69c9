"""The heartbeat: links to the other nodes, PINGs over them, and who does not answer.

Time: limits are measured on a time of the membership's own, which goes with the clock but never
back and never forward by more than ``MAX_STEP``. So neither a clock that is set nor a process that
stood still makes all others seem dead at once.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from disque_trio.cluster.addresses import BUS_OFFSET, is_loopback, is_port
from disque_trio.cluster.blacklist import Blacklist
from disque_trio.cluster.failure import FAILING, is_down, mark_down
from disque_trio.cluster.gossip import choose_entries
from disque_trio.cluster.hosts import Hosts
from disque_trio.cluster.links import Link, Network
from disque_trio.cluster.members import Member, Members
from disque_trio.core.peers import Peers
from disque_trio.protocol.bus import (
    MEET,
    NODE_HANDSHAKE,
    NODE_MEET,
    NODE_NOADDR,
    NODE_PFAIL,
    PING,
    Gossip,
    PacketWriter,
)

if TYPE_CHECKING:
    from random import Random

NODE_TIMEOUT = 15_000  # ms
MIN_HANDSHAKE_TIME = 1000  # ms
PING_PERIOD = 1000  # ms between pings of the stalest of a few
PING_SAMPLE = 5
RETRY_STEP, MAX_RETRY_WAIT = 100, 1000  # ms before a link that failed is tried again
MAX_STEP = 500  # ms; see above
MAX_MEMBERS = 1000  # handshakes included


class Heartbeat(Peers):
    """The links and what follows from time passing. See ``Membership``, which is all of it."""

    def __init__(
        self,
        packets: PacketWriter,
        network: Network,
        rng: "Random",
        deliver: Callable[[bytes, bytes, int], None],
    ) -> None:
        super().__init__()
        self.packets = packets
        self.deliver = deliver
        self.node_timeout = NODE_TIMEOUT
        self.now = 0
        self.ip = ""
        self._ip_from_file = False
        self.config_changed = False
        self.saver: Callable[[str], str | None] | None = None
        self.is_own_address: Callable[[str], bool] = is_loopback
        self.malformed = 0
        self._network = network
        self._rng = rng
        self._members = Members()
        self._known = self._members.known  # the same dict throughout
        self._blacklist = Blacklist()
        self._hosts = Hosts()
        self._time = 0
        self._ping_at = 0

    # ---- for the driver: time and links ---------------------------------------------------------

    def cron(self, now: int) -> None:
        """Keep links and failure states up to date; to be called every 100 ms."""
        self._pass_time(now)
        time = self._time
        timeout = self.node_timeout
        if self._members.handshakes:
            self._tend_handshakes(time)
        if time >= self._ping_at:
            self._ping_at = time + PING_PERIOD
            self._ping_stalest()
        for member in self._known.values():
            if member.flags & NODE_NOADDR:
                continue
            link = member.link
            if link is None:
                if time >= member.retry_at:
                    self._connect(member)
            elif not link.up:
                if time - member.link_since > timeout // 2:
                    self._unlink(member)
            elif not member.ping_sent:
                if time - member.pong_received > timeout // 2:
                    self._ping(member)
            elif time - member.ping_sent > timeout // 2 and time - member.link_since > timeout:
                # The node may be well and only the connection dead.
                self._unlink(member)
            if (
                member.ping_sent
                and time - member.ping_sent > timeout
                and not member.flags & FAILING
            ):
                member.flags |= NODE_PFAIL
                self._update(False)
                self._judge(member)

    def accepted(self, link: Link, now: int) -> None:
        """An incoming ``link`` is up. It belongs to whoever its packets say."""
        self._pass_time(now)

    def opened(self, link: Link, now: int) -> None:
        """An outgoing ``link`` is up."""
        self._pass_time(now)
        member = self._members.owner(link)
        if member is None:
            link.close()
            return
        member.link_since = self._time
        self._ping(member)

    def lost(self, link: Link, now: int) -> None:
        """A ``link`` broke, or could not be opened."""
        self._pass_time(now)
        member = self._members.owner(link)
        if member is not None:
            member.link = None
            member.attempts += 1
            member.retry_at = self._time + min(RETRY_STEP * member.attempts, MAX_RETRY_WAIT)

    def _pass_time(self, now: int) -> None:
        if self.now == 0:
            self._time = now
        elif now > self.now:
            self._time += min(now - self.now, MAX_STEP)
        self.now = now

    def _tend_handshakes(self, time: int) -> None:
        limit = max(self.node_timeout, MIN_HANDSHAKE_TIME)
        for member in list(self._members.handshakes.values()):
            if not member.since:  # it began before the first call that had a time
                member.since = time
            if time - member.since > limit:
                self._members.remove(member)
            elif member.link is None and time >= member.retry_at:
                self._connect(member)

    def _connect(self, member: Member) -> None:
        link = self._network.connect(member.ip, member.port + BUS_OFFSET)
        link.node_id = member.id
        member.link = link
        member.link_since = self._time
        # The wait for an answer begins now, or it would never end if no link can be had.
        if not member.ping_sent:
            member.ping_sent = self._time

    def _unlink(self, member: Member) -> None:
        if member.link is not None:
            member.link.close()
            member.link = None
            member.retry_at = self._time

    def _ping_stalest(self) -> None:
        ids = self._members.everyone
        if len(ids) > PING_SAMPLE:
            ids = self._rng.sample(ids, PING_SAMPLE)
        stalest: Member | None = None
        for id in ids:
            member = self._known[id]
            if (
                member.connected()
                and not member.ping_sent
                and (stalest is None or member.pong_received < stalest.pong_received)
            ):
                stalest = member
        if stalest is not None:
            self._ping(stalest)

    def _ping(self, member: Member) -> None:
        if member.link is not None:
            if not member.ping_sent:
                member.ping_sent = self._time
            self._tell(member.link, MEET if member.flags & NODE_MEET else PING, member.id)

    def _tell(self, link: Link, type: int, recipient: bytes, gossip: bool = True) -> None:
        entries: list[Gossip] = []
        if gossip:
            entries = choose_entries(self._members, self._rng, recipient, self.now - self._time)
        self._transmit(link, self.packets.gossip(type, entries))

    def _transmit(self, link: Link, packet: bytes) -> None:
        link.send(packet)
        self.messages_sent += 1

    def _begin_handshake(self, ip: str, port: int, flags: int, hearsay: bool = False) -> None:
        if (
            not ip
            or not is_port(port)
            or len(self._members) >= MAX_MEMBERS
            or (ip, port) == self.endpoint()
            or self._members.under_way(ip, port)
        ):
            return
        id = b"%040x" % self._rng.getrandbits(160)
        member = Member(id, ip, port, NODE_HANDSHAKE | flags, self._time)
        member.hearsay = hearsay
        self._members.handshakes[id] = member

    def _judge(self, member: Member) -> None:
        if is_down(member, self.size, self._time, self.node_timeout):
            mark_down(member)
            self._update()
            packet = self.packets.fail(member.id)
            for id in self._members.everyone:
                self.send(id, packet)

    def _update(self, matters: bool = True) -> None:
        """The table has changed; ``matters``: in a way that is worth a write to the disk."""
        self._members.update()
        self.reachable = self._members.reachable
        self.size = 1 + len(self._known)
        if self.by_host:
            self._hosts.compute(
                self.endpoint()[0],
                self.packets.port,
                self._known,
                self.reachable,
                self.is_own_address,
            )
        if matters:
            self.config_changed = True

    # ---- what the jobs ask for ------------------------------------------------------------------

    def places(self) -> int:
        return self._hosts.count if self.by_host else self.size

    def room(self, external: bool) -> int:
        return self._hosts.room(external) if self.by_host else len(self.reachable)

    def place(self, id: bytes) -> str:
        return self._hosts.of.get(id, "")

    def here(self) -> str:
        return self._hosts.here

    def partners(self) -> list[bytes]:
        return self._hosts.partners

    def everyone(self) -> list[bytes]:
        return self._members.everyone

    def knows(self, id: bytes) -> bool:
        return id in self._known

    def linked(self, id: bytes) -> bool:
        member = self._known.get(id)
        return member is not None and member.connected()

    def behind(self, id: bytes) -> bool:
        member = self._known.get(id)
        return (
            member is not None
            and member.link is not None
            and member.link.up
            and member.link.behind()
        )

    def send(self, id: bytes, packet: bytes) -> None:
        member = self._known.get(id)
        if member is not None:
            link = member.link
            if link is not None and link.up:
                link.send(packet)
                self.messages_sent += 1
