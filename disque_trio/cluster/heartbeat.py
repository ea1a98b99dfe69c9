"""The heartbeat: keeps links to the other nodes, sends PINGs and detects nodes that do not answer.

Time limits are measured by the membership's own time. It follows the clock, but never goes back,
and never advances by more than ``MAX_STEP`` beyond what it waits for. So neither a clock that was
set nor a process that was stopped makes all others seem dead at once.
"""

from collections.abc import Callable
from heapq import heappop, heappush

from disque_trio.cluster.failure import FAILING, Refusals, is_down, mark_down
from disque_trio.cluster.gossip import choose_entries
from disque_trio.cluster.links import Connect, Link
from disque_trio.cluster.members import NEVER, Member, Members
from disque_trio.cluster.myself import Myself
from disque_trio.process.addresses import BUS_OFFSET, is_port
from disque_trio.protocol.bus import (
    MEET,
    NODE_HANDSHAKE,
    NODE_MEET,
    NODE_NOADDR,
    NODE_PFAIL,
    PING,
    Gossip,
)
from disque_trio.rng import Rng

NODE_TIMEOUT = 15_000  # ms
MIN_HANDSHAKE_TIME = 1000  # ms
MEET_TIMES = 10  # node timeouts for which a node that CLUSTER MEET named is met again and again
MIN_MEET_TIME = 60_000  # ms
MEET_PERIOD = 1000  # ms between two MEETs to it
PING_PERIOD = 1000  # ms between pings to the stalest of a few
PING_SAMPLE = 5
RETRY_STEP, MAX_RETRY_WAIT = 100, 1000  # ms before a failed link is tried again
SHORTEST_WAIT = 50  # ms between two attempts, however often the member pings
EARLY = 16  # when one ping is due, so are those due within this fraction of the quiet time
MAX_STEP = 500  # ms; see above
MAX_MEMBERS = 1000  # including handshakes


class Heartbeat:
    """The time-driven part of the membership.

    Args:
        me: this node.
        members: the other nodes.
        connect: begins to open a link.
        rng: chooses the members to ping and to mention, and made-up ids for handshakes.
        transmit: sends a packet over a link that is up.

    Attributes:
        node_timeout: ms without an answer until a node is suspected.
        now: the driver's time, ms since the epoch.
        time: the membership's own, ms.
        hurry: called when ``cron`` may be due earlier than ``next_due`` said.
        unmet: called with the address of a node that CLUSTER MEET named when it is given up: it
            never answered, or never took this node in.
        died: called with a member that is dead.
    """

    def __init__(
        self,
        me: Myself,
        members: Members,
        connect: Connect,
        rng: Rng,
        transmit: Callable[[Link, bytes], None],
    ) -> None:
        self._node_timeout = NODE_TIMEOUT
        self.now = 0
        self.time = 0
        self._me = me
        self._members = members
        self._known = members.known  # always the same dict
        self._connect = connect
        self._rng = rng
        self._transmit = transmit
        self._ping_at = 0
        self._dues: list[tuple[int, bytes]] = []  # heap; valid are those that are ``Member.due``
        self._due = 0  # when ``cron`` is due, by the driver's time; 0: nobody has asked
        self.hurry: Callable[[], None] = _nobody
        self.unmet: Callable[[str, int], None] = _nobody_asks
        self.died: Callable[[Member], None] = _nobody_died
        self._refusals = Refusals()

    @property
    def node_timeout(self) -> int:
        return self._node_timeout

    @node_timeout.setter
    def node_timeout(self, node_timeout: int) -> None:
        self._node_timeout = node_timeout
        for member in self._known.values():
            self.watch(member)

    # ---- time and links -------------------------------------------------------------------------

    def cron(self, now: int) -> None:
        """Update links and failure states. Call it when ``next_due`` says, or every 100 ms."""
        self.pass_time(now)
        time = self.time
        if self._members.handshakes:
            self._tend_handshakes(time)
        if time >= self._ping_at:
            self._ping_at = time + PING_PERIOD
            self._ping_stalest()
        # Together: one turn for many packets, of this node and of those that answer.
        for member in self._take_due(time + self._node_timeout // 2 // EARLY):
            self._tend(member, time)
            self.watch(member)

    def _take_due(self, until: int) -> list[Member]:
        """Take out the members that are to be looked at by ``until``."""
        found: list[Member] = []
        dues = self._dues
        while dues and dues[0][0] <= until:
            at, id = heappop(dues)
            member = self._known.get(id)
            if member is not None and member.due == at:
                member.due = NEVER
                found.append(member)
        return found

    def _tend(self, member: Member, time: int) -> None:
        """Do what ``_when`` says is due."""
        timeout = self._node_timeout
        if member.meeting and time - member.since > self._meet_time():
            member.meeting = False
            self.unmet(member.ip, member.port)
        if member.flags & NODE_NOADDR:
            return
        link = member.link
        if link is None:
            if time >= member.retry_at:
                self.connect(member)
        elif not link.up:
            if time - member.link_since > timeout // 2:
                self.unlink(member)
        elif not member.ping_sent:
            quiet = self._quiet_time(member)
            if time - member.pong_received > quiet - quiet // EARLY:
                self.ping(member)
        elif time - member.ping_sent > timeout // 2 and time - member.link_since > timeout:
            # The node may be well, and only the connection dead.
            self.unlink(member)
        silent_since = _silent_since(member)
        if silent_since and time - silent_since > timeout and not member.flags & FAILING:
            member.flags |= NODE_PFAIL
            self._members.update(False)
            self.judge(member)

    def _when(self, member: Member) -> int:
        """Return when there is something to do about ``member``; NEVER: not before an event."""
        timeout = self._node_timeout
        at = member.since + self._meet_time() + 1 if member.meeting else NEVER
        if member.flags & NODE_NOADDR:
            return at
        link = member.link
        if link is None:
            at = min(at, member.retry_at)
        elif not link.up:
            at = min(at, member.link_since + timeout // 2 + 1)
        elif not member.ping_sent:
            at = min(at, member.pong_received + self._quiet_time(member) + 1)
        else:
            at = min(at, max(member.ping_sent + timeout // 2, member.link_since + timeout) + 1)
        silent_since = _silent_since(member)
        if silent_since and not member.flags & FAILING:
            at = min(at, silent_since + timeout + 1)
        return at

    def watch(self, member: Member) -> None:
        """Look at ``member`` when that is due. Call it after whatever may make it due earlier."""
        if member.flags & NODE_HANDSHAKE:
            self.hurry()
            return
        at = self._when(member)
        if at < member.due:
            member.due = at
            heappush(self._dues, (at, member.id))
            if self.now + at - self.time < self._due:
                self.hurry()

    def next_due(self) -> int:
        """Return when ``cron`` is due, by the driver's time, in ms; 0: not before an event."""
        time = self.time
        due = NEVER
        if self._members.handshakes:
            due = time + RETRY_STEP
        if self._known:
            due = min(due, self._first_due(), self._ping_at)
        self._due = NEVER if due == NEVER else self.now + max(due - time, 0)
        return 0 if due == NEVER else self._due

    def _first_due(self) -> int:
        """Return when there is something to do about any member."""
        dues = self._dues
        while dues:
            at, id = dues[0]
            member = self._known.get(id)
            if member is not None and member.due == at:
                if self._when(member) <= at:
                    return at
                member.due = NEVER
                heappop(dues)
                self.watch(member)
            else:
                heappop(dues)
        return NEVER

    def opened(self, link: Link, now: int) -> None:
        """Called when an outgoing ``link`` is up."""
        self.pass_time(now)
        member = self._members.owner(link)
        if member is None:
            link.close()
            return
        member.link_since = self.time
        member.answers = False
        self._refusals.answered(member.id)
        self.ping(member)
        self.watch(member)

    def lost(self, link: Link, now: int) -> None:
        """Called when a ``link`` broke, or could not be opened."""
        self.pass_time(now)
        member = self._members.owner(link)
        if member is not None:
            member.link = None
            member.attempts += 1
            member.retry_at = self.time + min(RETRY_STEP * member.attempts, MAX_RETRY_WAIT)
            self.watch(member)
            if not link.refused or _pings(member):
                self._refusals.answered(member.id)
            elif self._refusals.refused(member.id, self.time):
                self.died(member)

    def pass_time(self, now: int) -> None:
        """Advance the time to ``now`` (ms)."""
        if self.now == 0:
            self.time = now
        elif now > self.now:
            self.time += min(now - self.now, max(self._due - self.now, 0) + MAX_STEP)
        self.now = now

    def _quiet_time(self, member: Member) -> int:
        """How long ``member`` may be silent after a PONG before it is pinged, in ms."""
        half = self._node_timeout // 2
        return min(half, MEET_PERIOD) if member.meeting else half

    def _meet_time(self) -> int:
        """For how long a node that CLUSTER MEET named is met again and again, in ms."""
        return max(MEET_TIMES * self._node_timeout, MIN_MEET_TIME)

    def _tend_handshakes(self, time: int) -> None:
        """Open the links of handshakes, and give up those that take too long."""
        usual = max(self._node_timeout, MIN_HANDSHAKE_TIME)
        for member in list(self._members.handshakes.values()):
            if not member.since:
                member.since = time
            limit = self._meet_time() if member.meeting else usual
            link = member.link
            if time - member.since > limit:
                if member.meeting:
                    self.unmet(member.ip, member.port)
                self._members.remove(member)
            elif link is None:
                if time >= member.retry_at:
                    self.connect(member)
            elif time - member.link_since > usual:
                # The address may have led nowhere at that time, or to a process that is gone.
                self.unlink(member)

    def connect(self, member: Member) -> None:
        """Begin to open a link to ``member``."""
        link = self._connect(member.ip, member.port + BUS_OFFSET)
        link.node_id = member.id
        member.link = link
        member.link_since = self.time
        # The wait for an answer begins now: it must end even if no link can be opened.
        if not member.ping_sent:
            member.ping_sent = self.time
        self.watch(member)

    def link_back(self, member: Member) -> None:
        """Connect to ``member`` now rather than when the next attempt is due: it has just pinged
        over its own link, so it is up."""
        if member.flags & NODE_NOADDR:
            return
        link = member.link
        if link is not None:
            if link.local_ip or self.time - member.link_since <= MAX_RETRY_WAIT:
                return
            # There was no answer to the first SYN, and TCP repeats it at growing intervals.
            self.unlink(member)
        member.retry_at = min(member.retry_at, member.link_since + SHORTEST_WAIT)
        if self.time >= member.retry_at:
            self.connect(member)
        self.watch(member)

    def unlink(self, member: Member) -> None:
        """Close the link to ``member``; a new one may be opened at once."""
        if member.link is not None:
            member.link.close()
            member.link = None
            member.retry_at = self.time
        self.watch(member)

    def _ping_stalest(self) -> None:
        """Ping the one of a few members that has been silent for the longest time."""
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
            self.ping(stalest)

    def ping(self, member: Member) -> None:
        """Send ``member`` a PING, or a MEET if it has yet to be met."""
        if member.link is not None:
            if not member.ping_sent:
                member.ping_sent = self.time
            wants_in = member.meeting or member.flags & NODE_MEET
            self.tell(member.link, MEET if wants_in else PING, member.id)

    def tell(self, link: Link, type: int, recipient: bytes, gossip: bool = True) -> None:
        """Send a packet of ``type`` to ``recipient``; ``gossip``: mention other nodes."""
        entries: list[Gossip] = []
        if gossip:
            entries = choose_entries(self._members, self._rng, recipient, self.now - self.time)
        self._transmit(link, self._me.packets.gossip(type, entries))

    def meet(self, ip: str, port: int, key: bytes) -> None:
        """CLUSTER MEET: learn which node is at this address, and be known by it; try until both
        is so, but not forever. ``key``: the public key that it has to show; empty: any."""
        self.begin_handshake(ip, port, NODE_MEET)
        member = self._members.under_way(ip, port)
        if member is not None:
            member.flags |= NODE_MEET
            member.meeting = True
            member.key = key

    def begin_handshake(self, ip: str, port: int, flags: int, hearsay: bool = False) -> None:
        """Find out which node is at this address, unless that is known or the address is
        invalid."""
        if (
            not ip
            or not is_port(port)
            or len(self._members) >= MAX_MEMBERS
            or (ip, port) == self._me.endpoint()
            or self._members.under_way(ip, port)
        ):
            return
        id = b"%040x" % self._rng.getrandbits(160)
        # Its time begins at the next ``cron``, which is due now: if nothing has been due for long,
        # as on a node that is alone, ``time`` is long past.
        member = Member(id, ip, port, NODE_HANDSHAKE | flags, 0)
        member.hearsay = hearsay
        self._members.handshakes[id] = member
        self.hurry()

    def judge(self, member: Member) -> None:
        """Mark ``member`` as down, and tell everyone, if most nodes suspect it."""
        if is_down(member, 1 + len(self._known), self.time, self._node_timeout):
            mark_down(member)
            self._members.update()
            packet = self._me.packets.fail(member.id)
            for id in self._members.everyone:
                link = self._known[id].link
                if link is not None and link.up:
                    self._transmit(link, packet)


def _silent_since(member: Member) -> int:
    """Since when ``member`` owes an answer, to a PING or to anything else; 0: it owes none."""
    if member.ping_sent and member.owes_since:
        return min(member.ping_sent, member.owes_since)
    return member.ping_sent or member.owes_since


def _pings(member: Member) -> bool:
    """Whether a connection from ``member`` is up: then its process runs, whatever its port says."""
    return member.pings_over is not None and member.pings_over.up


def _nobody() -> None:
    """Default of ``hurry``, if ``cron`` is called every 100 ms."""


def _nobody_asks(ip: str, port: int) -> None:
    """Default of ``unmet``."""


def _nobody_died(member: Member) -> None:
    """Default of ``died``."""
