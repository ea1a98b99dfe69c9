"""Membership: keeps track of the nodes in the cluster and of those that are alive.

A state machine: the driver opens links, passes in the time, and brings packets. ``heartbeat`` is
the part driven by time, ``handlers`` the part driven by other nodes; this module has what jobs and
commands need, and what is kept on disk.

How a node gets in: a handshake begins with an address, from CLUSTER MEET, from the MEET of a
stranger, or because a member mentioned it. A link to it is opened and a MEET sent (or a PING, if it
sent a MEET itself). Its PONG tells its id, which ends the handshake. A MEET makes the other side
begin a handshake in return; a PING from a stranger is answered and changes nothing. That handshake
may fail, or not begin, as there are too many: so CLUSTER MEET goes on after the PONG, until the
other node has pinged this one.
"""

from collections.abc import Callable, Sequence
from typing import Final

from disque_trio.cluster.blacklist import Blacklist
from disque_trio.cluster.failure import FAILING
from disque_trio.cluster.handlers import PacketHandlers
from disque_trio.cluster.heartbeat import MAX_MEMBERS, Heartbeat
from disque_trio.cluster.hosts import Hosts
from disque_trio.cluster.keyring import Keyring
from disque_trio.cluster.links import Connect, Link
from disque_trio.cluster.members import Member, Members
from disque_trio.cluster.myself import Myself
from disque_trio.cluster.nodes_conf import NodeLine, NodesConfError, format_nodes, parse_nodes
from disque_trio.cluster.peers import Lost, Obstacle, Peer, Peers
from disque_trio.cluster.troubles import (
    TROUBLE_FILE,
    TROUBLE_FULL,
    TROUBLE_SLOW,
    describe_trouble,
)
from disque_trio.cluster.trust import Trust
from disque_trio.health.story import Known
from disque_trio.notation.addresses import format_address
from disque_trio.process.addresses import is_loopback, is_port
from disque_trio.protocol.bus import (
    EXTENSIONS,
    FAIL,
    GROUPS,
    KEYS,
    LAST,
    LOTS,
    MEET,
    NODE_FAIL,
    NODE_HANDSHAKE,
    NODE_LEAVING,
    NODE_MYSELF,
    NODE_NOADDR,
    NODE_PFAIL,
    PING,
    PONG,
    REPLACING,
    REPLJOB,
    SETTLING,
    TELLING,
    UPDATEJOB,
    VERSION,
    YOURJOBS,
    PacketError,
    PacketWriter,
    packet_sender,
    packet_type,
)
from disque_trio.rng import Rng

PRIORITY_OK, PRIORITY_UNLINKED, PRIORITY_SUSPECT, PRIORITY_BAD = 1, 5, 10, 100
_MOST: Final = 1 << 20  # bytes: MAX_CONTROL_PACKET; importing it would cost a look-up
_NOT_LINKED: Final = NODE_PFAIL | NODE_FAIL | NODE_NOADDR | NODE_HANDSHAKE
_FROM_FILE = NODE_PFAIL | NODE_FAIL | NODE_NOADDR | NODE_LEAVING


class Membership(Peers):
    """The other nodes of the cluster, as a state machine.

    Args:
        packets: makes this node's packets; has its id, port and announced ip.
        connect: begins to open a link.
        rng: chooses the members to ping and to mention, and made-up ids for handshakes.
        saver: writes the text of nodes.conf to disk; returns why that failed, or None.
        is_own_address: whether an address is one of this machine's.

    Attributes:
        config_changed: whether what ``dump_conf`` returns has changed in a way that matters since
            ``save`` last succeeded.
        malformed: number of packets that were ignored because of their contents.
        leaving: this node is about to leave; kept over restarts.
        extensions_heard: called when a member is new or gone, or announces other extensions.
    """

    def __init__(
        self,
        packets: PacketWriter,
        connect: Connect,
        rng: Rng,
        saver: Callable[[str], str | None] = lambda text: None,
        is_own_address: Callable[[str], bool] = is_loopback,
    ) -> None:
        super().__init__()
        self.packets = packets
        self.config_changed = False
        self.malformed = 0
        self.me = Myself(packets)
        self.extensions_heard: Callable[[], None] = _nobody
        self._extensions = "auto"
        self._announced: dict[bytes, int] = {}
        self._members = Members(self._changed)
        self._known = self._members.known  # always the same dict
        self.heartbeat = Heartbeat(self.me, self._members, connect, rng, self._transmit)
        self.heartbeat.died = self._died
        self._blacklist = Blacklist()
        handlers = self._packet_handlers = PacketHandlers(
            self.me, self._members, self.heartbeat, self._blacklist, self._tell_linked
        )
        self._handlers: dict[int, Callable[[Link, int, bytes, bytes], None]] = {
            PING: handlers.handle_ping,
            PONG: handlers.handle_ping,
            MEET: handlers.handle_ping,
            FAIL: handlers.handle_fail,
        }
        self._hosts = Hosts()
        self._hosts_stale = False
        self._saver = saver
        self._is_own_address = is_own_address

    def use_identity(self, key: bytes, keyring: Keyring) -> Trust:
        """Have the other nodes show their keys: this node has the public ``key`` and knows the keys
        in ``keyring``. Call it once, before any link is opened."""
        trust = Trust(key, keyring, self.packets, self._members)
        trust.forget = self._expelled
        trust.is_forgotten = lambda id: self._blacklist.has(id, self.heartbeat.time)
        self.trust = self._packet_handlers.trust = trust
        return trust

    def _expelled(self, id: bytes) -> None:
        """Forget the node ``id``, which the cluster has expelled."""
        member = self._known.get(id)
        if member is not None:
            self._members.remove(member)

    def _changed(self, matters: bool) -> None:
        """Handle a change of the table; ``matters``: it is worth a write to disk."""
        self.reachable = self._members.reachable
        self.size = 1 + len(self._known)
        self._hosts_stale = True
        self._judge_extensions()
        if matters:
            self.config_changed = True

    def _judge_extensions(self) -> None:
        """Compute whether jobs may have trailers."""
        known = self._known
        announced = {id: known[id].extensions for id in known if known[id].extensions}
        self.extended = self._extensions == "yes" or (
            self._extensions == "auto" and len(announced) == len(known)
        )
        if announced != self._announced:
            self._announced = announced
            self.extensions_heard()

    def extensions(self) -> dict[bytes, int]:
        """Return the extensions that the members announce, by ID; without C nodes."""
        return self._announced

    def remember_extensions(self, announced: dict[bytes, int]) -> None:
        """Take over what members announced before this process started; they may be down now."""
        for id, extensions in announced.items():
            member = self._known.get(id)
            if member is not None:
                member.extensions = extensions
        self._judge_extensions()

    def set_extensions(self, wanted: str) -> None:
        """Set cluster-extensions: "auto", "yes" or "no"."""
        self._extensions = wanted
        self.plain = wanted == "no"
        self.packets.extensions = 0 if wanted == "no" else EXTENSIONS
        self.packets.refresh()
        self._judge_extensions()

    def _transmit(self, link: Link, packet: bytes) -> None:
        link.send(packet)
        self.messages_sent += 1

    # ---- for the driver -------------------------------------------------------------------------

    def cron(self, now: int) -> None:
        """Update links and failure states. Call it every 100 ms."""
        self.heartbeat.cron(now)

    def accepted(self, link: Link, now: int) -> None:
        """Called when an incoming ``link`` is up. Its packets tell which node it belongs to."""
        self.heartbeat.pass_time(now)

    def opened(self, link: Link, now: int) -> None:
        """Called when an outgoing ``link`` is up."""
        self.heartbeat.opened(link, now)
        if self.trust is not None:
            self.trust.inform(link)

    def _tell_linked(self, member: Member, again: bool) -> None:
        """Say that there is a connection to ``member``, ``again`` or for the first time, once both
        know each other and it serves others."""
        if member.pinged and member.answers and member.connected():
            if self.trust is not None and member.link is not None:
                self.trust.inform(member.link)
            self.linked_to(member.id, again)

    def _died(self, member: Member) -> None:
        """Say that ``member`` is dead."""
        if self.tells(member.id):
            self.died(member.id)

    def lost(self, link: Link, now: int) -> None:
        """Called when a ``link`` broke, or could not be opened."""
        self.heartbeat.lost(link, now)

    def receive(self, link: Link, packet: bytes, now: int) -> bytes:
        """Handle a complete ``packet`` from ``link``. Return its sender if that is a member and
        the packet is about jobs, and so for the node; otherwise nothing."""
        self.heartbeat.pass_time(now)
        self.messages_received += 1
        if packet[8] << 8 | packet[9] != VERSION:
            return b""
        type = packet_type(packet)
        sender = packet_sender(packet)
        if link.peer and sender != link.peer:
            self._refuse_speaker(link, sender, now)
            return b""
        if type > FAIL:
            if type == KEYS and self.trust is not None:
                self._hear_keys(self.trust, link, packet)
            member = self._known.get(sender)
            if member is None or type > LAST:
                return b""
            member.owes_since = 0
            # The member's own id object, not a slice: comparing ids is then mostly comparing
            # objects.
            return member.id
        try:
            self._handlers[type](link, type, sender, packet)
        except PacketError:
            self.malformed += 1
        return b""

    def _refuse_speaker(self, link: Link, sender: bytes, now: int) -> None:
        """Close ``link``, whose other side has proved to be another node than ``sender``."""
        if self.trust is not None:
            self.trust.refused += 1
            self.trust.accuse(
                "a node was refused: it sent a packet in the name of another", link.peer, link.key
            )
        link.close()
        self.heartbeat.lost(link, now)

    def _hear_keys(self, trust: Trust, link: Link, packet: bytes) -> None:
        """Handle what another node knows of keys."""
        try:
            trust.hear(link, packet)
        except PacketError:
            self.malformed += 1

    # ---- for the jobs ---------------------------------------------------------------------------

    def places(self) -> int:
        return self._placed().count if self.by_host else self.size

    def takers(self) -> list[bytes]:
        return self._members.takers

    def obstacles(self) -> list[Obstacle]:
        found: list[Obstacle] = []
        for id in self._members.everyone:
            member = self._known[id]
            why = _obstacle(member)
            if why:
                trouble = member.trouble if id in self.reachable else 0
                found.append(Obstacle(format_address(member.ip, member.port), why, trouble))
        return found

    def room(self, external: bool) -> int:
        return self._placed().room(external) if self.by_host else len(self.takers())

    def place(self, id: bytes) -> str:
        return self._placed().of.get(id, "")

    def here(self) -> str:
        return self._placed().here

    def partners(self) -> list[bytes]:
        return self._placed().partners

    def everyone(self) -> list[bytes]:
        return self._members.everyone

    def knows(self, id: bytes) -> bool:
        return id in self._known

    def understands(self, id: bytes) -> bool:
        member = self._known.get(id)
        return member is not None and member.extensions != 0 and self._extensions != "no"

    def tells(self, id: bytes) -> bool:
        return self._both(id) & TELLING != 0

    def settles(self, id: bytes) -> bool:
        return self._both(id) & SETTLING != 0

    def keeps_lots(self, id: bytes) -> bool:
        return self._both(id) & LOTS != 0

    def limits_groups(self, id: bytes) -> bool:
        return self._both(id) & GROUPS != 0

    def replaces_jobs(self, id: bytes) -> bool:
        return self._both(id) & REPLACING != 0

    def _both(self, id: bytes) -> int:
        """The extensions that this node and the node ``id`` have announced."""
        member = self._known.get(id)
        return 0 if member is None else member.extensions & self.packets.extensions

    def linked(self, id: bytes) -> bool:
        member = self._known.get(id)
        return member is not None and member.connected()

    def answers(self, id: bytes) -> bool:
        member = self._known.get(id)
        return member is not None and member.connected() and member.answers

    def leaves(self, id: bytes) -> bool:
        member = self._known.get(id)
        return member is not None and member.flags & NODE_LEAVING != 0

    def cannot_write(self, id: bytes) -> bool:
        member = self._known.get(id)
        return member is not None and member.trouble & TROUBLE_FILE != 0

    def has_slow_disk(self, id: bytes) -> bool:
        member = self._known.get(id)
        return member is not None and member.trouble & TROUBLE_SLOW != 0

    def behind(self, id: bytes) -> bool:
        member = self._known.get(id)
        return (
            member is not None
            and member.link is not None
            and member.link.up
            and member.link.behind()
        )

    def expect(self, ids: list[bytes], now: int) -> None:
        self.heartbeat.pass_time(now)
        for id in ids:
            member = self._known.get(id)
            if member is not None and not member.owes_since:
                # The heartbeat looks at it in time: its PING is due before that is too long ago.
                member.owes_since = self.heartbeat.time

    def send(self, id: bytes, packet: bytes) -> None:
        member = self._known.get(id)
        if len(packet) > _MOST and packet_type(packet) not in (REPLJOB, YOURJOBS, UPDATEJOB):
            return  # the other side would break the connection: what others sent has grown too long
        if member is not None:
            link = member.link
            if link is not None and link.up:
                link.send(packet)
                self.messages_sent += 1

    def _placed(self) -> Hosts:
        """Return which nodes run on which host.

        This asks the system about each address, so it is done when needed, not after each of a
        thousand changes.
        """
        if self._hosts_stale:
            self._hosts_stale = False
            self._hosts.compute(
                self.endpoint()[0],
                self.packets.port,
                self._known,
                self.takers(),
                self._is_own_address,
            )
        return self._hosts

    # ---- for HELLO, CLUSTER and INFO ------------------------------------------------------------

    def others(self) -> list[Peer]:
        return [
            Peer(m.id, m.ip, m.port, _priority(m), m.tls_port, m.process)
            for m in self._members.all()
        ]

    @property
    def own_process(self) -> bytes:
        return self.packets.process

    @property
    def tls_port(self) -> int:
        return self.packets.tls_port

    def endpoint(self) -> tuple[str, int]:
        return self.me.endpoint()

    def states(self) -> dict[str, int]:
        """Return the number of nodes in each state, including this one."""
        states = {"ok": 1, "pfail": 0, "fail": 0, "handshake": len(self._members.handshakes)}
        for member in self._known.values():
            fails, suspected = member.flags & NODE_FAIL, member.flags & NODE_PFAIL
            states["fail" if fails else "pfail" if suspected else "ok"] += 1
        return states

    def node_states(self) -> dict[str, int]:
        """Like ``states``, but the processes of a server are one node, which is as well as the
        best of them."""
        best = {self.packets.process[:8] or self.packets.id: 0}
        for member in self._known.values():
            name = member.process[:8] or member.id
            flags = member.flags
            state = 2 if flags & NODE_FAIL else 1 if flags & NODE_PFAIL else 0
            if state < best.get(name, 3):
                best[name] = state
        found = list(best.values())
        states = {name: found.count(number) for number, name in enumerate(("ok", "pfail", "fail"))}
        return states | {"handshake": len(self._members.handshakes)}

    def links_up(self) -> int:
        """Return the number of nodes this one is connected to."""
        return len([member for member in self._known.values() if member.connected()])

    def lost_nodes(self) -> list[Lost]:
        """The members that do not answer."""
        found: list[Lost] = []
        for id in self._members.everyone:
            member = self._known[id]
            if member.flags & FAILING:
                heard = member.pong_received
                silent = max(self.heartbeat.time - heard, 0) if heard else 0
                agreed = member.flags & NODE_FAIL != 0
                address = format_address(member.ip, member.port)
                found.append(Lost(id, address, silent, agreed))
        return found

    def known_nodes(self) -> list[Known]:
        """All other nodes, without handshakes."""
        return [
            Known(
                id,
                format_address(member.ip, member.port),
                member.flags & NODE_FAIL != 0,
                member.flags & NODE_LEAVING != 0,
            )
            for id, member in self._known.items()
        ]

    def unlinked(self) -> list[tuple[bytes, str]]:
        """The members that may be well, but to which there is no connection over which they answer,
        as one that they accept and close: ids and addresses."""
        return [
            (member.id, format_address(member.ip, member.port))
            for member in self._members.all()
            if not (member.answered() or member.flags & _NOT_LINKED)
        ]

    def describe(self) -> str:
        return format_nodes([self._my_line(), *map(self._line, self._members.all())])

    def meet(self, ip: str, port: int, key: bytes = b"") -> None:
        self.heartbeat.meet(ip, port, key)

    def has(self, places: Sequence[tuple[str, int]]) -> bool:
        """Whether a member has one of these addresses."""
        return any((m.ip, m.port) in places for m in self._known.values())

    def forget(self, id: bytes) -> bool:
        member = self._known.get(id) or self._members.handshakes.get(id)
        dropped = self.trust is not None and self.trust.drop(id)
        if member is None and not dropped:
            return False
        self._blacklist.add(id, self.heartbeat.time)
        if member is not None:
            if member.flags & FAILING:
                self._died(member)  # the operator knows
            self._members.remove(member)
            self._members.update()
        return True

    def reset(self, id: bytes) -> None:
        for member in self._members.all():
            self._members.remove(member)
        self._blacklist.clear()
        self.packets.id = id
        self.packets.refresh()
        self._members.update()
        if self.trust is not None:
            self.trust.reset()

    def spread(self, by_host: bool) -> None:
        """Set whether copies of a job have to be on different hosts."""
        self.by_host = by_host
        self._members.update(False)

    @property
    def leaving(self) -> bool:
        return self.packets.flags & NODE_LEAVING != 0

    def set_leaving(self, leaving: bool) -> None:
        if leaving != self.leaving:
            self.packets.flags ^= NODE_LEAVING
            self.config_changed = True
            self._announce()

    def set_trouble(self, trouble: int) -> None:
        if trouble != self.trouble:
            self.trouble = self.packets.trouble = trouble
            self._announce()

    def _announce(self) -> None:
        """Tell all members what has changed in the headers of this node's packets."""
        self.packets.refresh()
        for member in self._known.values():
            if member.connected():
                self.heartbeat.ping(member)  # otherwise some would hear of it seconds later

    # ---- nodes.conf -----------------------------------------------------------------------------

    def save(self) -> str | None:
        problem = self._saver(self.dump_conf())
        if problem is None:
            self.config_changed = False
        return problem

    def dump_conf(self) -> str:
        """The text of nodes.conf: this node and the members, without handshakes."""
        known = [self._line(self._known[id]) for id in self._members.everyone]
        return format_nodes([self._my_line(), *known])

    def load_conf(self, text: str, now: int) -> None:
        """Load a nodes.conf, including this node's id (into ``packets``) and LEAVING. Call it
        before anything else.

        Raises:
            NodesConfError: it is invalid; nothing has changed.
        """
        conf = parse_nodes(text)
        count = len(conf.others)
        if count > MAX_MEMBERS:
            raise NodesConfError(f"{count} other nodes, but there can be at most {MAX_MEMBERS}")
        self.heartbeat.pass_time(now)
        self.packets.id = conf.myself.id
        self.packets.flags = NODE_MYSELF | (conf.myself.flags & NODE_LEAVING)
        self.packets.refresh()
        self.me.remember(conf.myself.ip)
        time = self.heartbeat.time
        for line in conf.others:
            member = Member(line.id, line.ip, line.port, line.flags & _FROM_FILE, time)
            if not line.ip or not is_port(line.port):
                member.flags |= NODE_NOADDR
            if line.pong_received:
                member.pong_received = time
                member.pinged = True
            self._known[line.id] = member
            self.heartbeat.watch(member)
        self._members.update(False)

    def _my_line(self) -> NodeLine:
        return NodeLine(self.packets.id, *self.endpoint(), self.packets.flags)

    def _line(self, member: Member) -> NodeLine:
        wall = self.heartbeat.now - self.heartbeat.time
        return NodeLine(
            member.id,
            member.ip,
            member.port,
            member.flags,
            member.ping_sent and member.ping_sent + wall,
            member.pong_received and member.pong_received + wall,
            member.connected(),
        )


def _nobody() -> None:
    pass


def _priority(member: Member) -> int:
    """Return the priority of a node in HELLO: that of the worst rule that applies."""
    if member.flags & (NODE_FAIL | NODE_LEAVING) or member.trouble & TROUBLE_FILE:
        return PRIORITY_BAD
    if member.flags & NODE_PFAIL or member.trouble & (TROUBLE_FULL | TROUBLE_SLOW):
        return PRIORITY_SUSPECT
    return PRIORITY_OK if member.connected() else PRIORITY_UNLINKED


def _obstacle(member: Member) -> str:
    """Why a node can take no copies; empty: it can."""
    if member.flags & (NODE_FAIL | NODE_PFAIL | NODE_NOADDR):
        return "is down"
    if member.flags & NODE_LEAVING:
        return "is leaving the cluster"
    return describe_trouble(member.trouble)
