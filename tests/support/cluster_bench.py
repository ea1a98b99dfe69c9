"""A cluster of memberships over an in-memory network, with a clock moved by hand."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from disque_trio.cluster.keyring import Keyring
from disque_trio.cluster.links import Link
from disque_trio.cluster.members import NEVER
from disque_trio.cluster.membership import Membership
from disque_trio.cluster.nodes_conf import NodeLine, NodesConf, parse_nodes
from disque_trio.process.addresses import is_loopback
from disque_trio.protocol.bus import PacketWriter, packet_type

START = 1_700_000_000_000  # ms
STEP = 10  # ms that a packet or a connection takes


class MemoryLink(Link):
    """One end of a connection; ``other`` is the far end."""

    __slots__ = ("closed", "machine", "other")

    def __init__(self, machine: Machine, outgoing: bool) -> None:
        super().__init__(outgoing)
        self.machine = machine
        self.other: MemoryLink | None = None
        self.closed = False

    def send(self, packet: bytes) -> None:
        if self.up and self.other is not None:
            self.machine.wires.carry(self.machine, self.other, packet)

    def close(self) -> None:
        self.closed = True
        self.up = False
        if self.other is not None:
            self.machine.wires.cut(self.machine, self.other)


class MemoryNetwork:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def connect(self, ip: str, port: int) -> Link:
        link = MemoryLink(self.machine, True)
        self.machine.connects.append((ip, port))
        self.machine.wires.open(link, ip, port)
        return link


@dataclass(eq=False)
class Machine:
    """One node: its membership, received packets, and to whom connections were new, or again."""

    wires: Wires
    ip: str
    port: int
    seed: int
    up: bool = True
    jobs: list[tuple[bytes, bytes]] = field(default_factory=list)
    connects: list[tuple[str, int]] = field(default_factory=list)
    linked_to: list[tuple[bytes, bool]] = field(default_factory=list)
    died: list[bytes] = field(default_factory=list)  # nodes that are certainly dead
    links: list[MemoryLink] = field(default_factory=list)
    conf: str = ""
    saves: int = 0
    save_problem: str | None = None
    is_own_address: Callable[[str], bool] = is_loopback
    source_ip: str = ""  # of its outgoing connections, if not ``ip``
    identity: str = "no"  # cluster-identity, as of the next start
    keyring: Keyring = field(default_factory=Keyring)
    heard: set[int] = field(default_factory=set)  # types of packets
    bytes_received: int = 0
    cron_at: int = 0  # elapsed ms at which its periodic work is due

    def __post_init__(self) -> None:
        self.boot(b"%040x" % random.Random(self.seed).getrandbits(160))

    def boot(self, id: bytes) -> None:
        """Start the process from its saved state, or else as ``id``."""
        self.up = True
        self.member = Membership(
            PacketWriter(id, self.port),
            MemoryNetwork(self).connect,
            random.Random(self.seed + 1000),
            self._save,
            lambda ip: self.is_own_address(ip),
        )
        if self.identity != "no":
            trust = self.member.use_identity(self.key, self.keyring)
            trust.required = self.identity == "yes"
            trust.close_links = self._part_with
        self.member.heartbeat.node_timeout = self.wires.node_timeout
        self.member.heartbeat.hurry = self._hurry
        self.member.linked_to = lambda id, again: self.linked_to.append((id, again))
        self.member.died = self.died.append
        self._hurry()
        if self.conf:
            self.member.load_conf(self.conf, self.wires.now)

    @property
    def key(self) -> bytes:
        """Its public key."""
        return b"key of %25d" % self.seed

    def _part_with(self, keys: set[bytes]) -> None:
        """Close the links of nodes with ``keys``."""
        for link in [link for link in self.links if link.key in keys]:
            link.close()

    def _hurry(self) -> None:
        self.cron_at = 0

    def cron(self, elapsed: int) -> None:
        """Run the due periodic work, and note when it is due again."""
        now = self.wires.now
        self.member.cron(now)
        due = self.member.heartbeat.next_due()
        self.cron_at = elapsed + due - now if due else NEVER

    def receive(self, link: Link, packet: bytes, now: int) -> None:
        """Receive a packet; those not for the membership are kept in ``jobs``."""
        self.heard.add(packet_type(packet))
        self.bytes_received += len(packet)
        sender = self.member.receive(link, packet, now)
        if sender:
            self.jobs.append((sender, packet))

    def _save(self, text: str) -> str | None:
        if self.save_problem is not None:
            return self.save_problem
        self.conf = text
        self.saves += 1
        return None

    def crash(self) -> None:
        """End the process and break its connections."""
        self.up = False
        for link in self.links:
            link.close()
        self.links.clear()

    @property
    def id(self) -> bytes:
        return self.member.packets.id

    def nodes(self) -> NodesConf:
        """CLUSTER NODES."""
        return parse_nodes(self.member.describe())

    def line(self, other: Machine) -> NodeLine:
        """The line of CLUSTER NODES about ``other``."""
        (line,) = [line for line in self.nodes().others if line.id == other.id]
        return line

    def knows(self, other: Machine) -> bool:
        return self.member.knows(other.id)

    def reaches(self, other: Machine) -> bool:
        return other.id in self.member.reachable

    def priority(self, other: Machine) -> int:
        """The priority of ``other`` in HELLO."""
        (peer,) = [peer for peer in self.member.others() if peer.id == other.id]
        return peer.priority


class Wires:
    """The network, the machines on it and their common clock, ``now``, which may be set.

    ``blocked`` contains pairs (from, to) between which packets vanish.
    """

    def __init__(self, node_timeout: int = 15_000) -> None:
        self.now = START
        self._elapsed = 0  # ms of simulated time
        self.node_timeout = node_timeout
        self.machines: list[Machine] = []
        self.blocked: set[tuple[Machine, Machine]] = set()
        self._plain: set[tuple[int, str, int]] = set()  # attempts that show no identity
        self._queue: list[tuple[int, Callable[[], None]]] = []

    def add(self, count: int, port: int = 7711) -> list[Machine]:
        """Add ``count`` nodes, each on its own machine."""
        new = [
            Machine(self, f"10.0.{number // 254}.{number % 254 + 1}", port, number)
            for number in range(len(self.machines), len(self.machines) + count)
        ]
        self.machines += new
        return new

    def find(self, ip: str, bus_port: int) -> Machine | None:
        for machine in self.machines:
            if machine.up and machine.ip == ip and machine.port + 10_000 == bus_port:
                return machine
        return None

    def block(self, *pairs: tuple[Machine, Machine]) -> None:
        self.blocked.update(pairs)

    def isolate(self, machine: Machine) -> None:
        """Block all traffic to and from ``machine``."""
        for other in self.machines:
            self.block((machine, other), (other, machine))

    def _later(self, action: Callable[[], None]) -> None:
        self._queue.append((self._elapsed + STEP, action))

    def open(self, link: MemoryLink, ip: str, port: int) -> None:
        source = link.machine

        def arrive() -> None:
            if link.closed or not source.up:
                return
            target = source if ip == "127.0.0.1" else self.find(ip, port)
            if target is None or target.port + 10_000 != port:
                link.refused = True
                source.member.lost(link, self.now)
                return
            if (source, target) in self.blocked or (target, source) in self.blocked:
                return  # like a firewall that drops packets
            far = MemoryLink(target, False)
            link.other, far.other = far, link
            link.remote_ip = far.local_ip = ip
            link.local_ip = far.remote_ip = (
                "127.0.0.1" if ip == "127.0.0.1" else source.source_ip or source.ip
            )
            if not self._introduce(link, far, (source.seed, ip, port)):
                source.member.lost(link, self.now)
                return
            link.up = far.up = True
            source.links.append(link)
            target.links.append(far)
            target.member.accepted(far, self.now)
            source.member.opened(link, self.now)

        self._later(arrive)

    def _introduce(self, link: MemoryLink, far: MemoryLink, attempt: tuple[int, str, int]) -> bool:
        """Let the nodes at both ends show who they are, if they use identities, as a ``BusLink``
        does: to one that knows of none, the next attempt goes without. Returns whether they may
        talk."""
        near, other = link.machine, far.machine
        shows = near.identity != "no" and attempt not in self._plain
        self._plain.discard(attempt)
        if not shows:
            return other.identity != "yes"
        if other.identity == "no":
            if near.identity == "optional":
                self._plain.add(attempt)
            return False
        ends = ((link, near, other), (far, other, near))
        for end, judge, shown in ends:
            trust = judge.member.trust
            if trust is None or trust.judge(end, shown.id, shown.key):
                return False
        for end, judge, shown in ends:
            end.peer, end.key = shown.id, shown.key
            if judge.member.trust is not None:
                judge.member.trust.proved(end)
        return True

    def carry(self, source: Machine, to: MemoryLink, packet: bytes) -> None:
        def arrive() -> None:
            if to.up and to.machine.up and (source, to.machine) not in self.blocked:
                to.machine.receive(to, packet, self.now)

        self._later(arrive)

    def cut(self, source: Machine, to: MemoryLink) -> None:
        def arrive() -> None:
            if to.up and to.machine.up and (source, to.machine) not in self.blocked:
                to.up = False
                to.machine.links = [link for link in to.machine.links if link.up]
                to.machine.member.lost(to, self.now)

        self._later(arrive)

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.wait(lambda: False, seconds, must=False)

    def wait(self, done: Callable[[], bool], seconds: float, must: bool = True) -> None:
        """Let time pass until ``done()``, which must happen within ``seconds``."""
        end = self._elapsed + round(seconds * 1000)
        while self._elapsed < end:
            if done():
                return
            self.now += STEP
            self._elapsed += STEP
            due = [action for at, action in self._queue if at <= self._elapsed]
            self._queue = [(at, action) for at, action in self._queue if at > self._elapsed]
            for action in due:
                action()
            for machine in self.machines:
                if machine.up:
                    if self._elapsed >= machine.cron_at:
                        machine.cron(self._elapsed)
                    if machine.member.config_changed:
                        assert machine.member.save() is None
        assert not must or done(), [m.member.describe() for m in self.machines]

    def meshed(self, machines: list[Machine] | None = None) -> bool:
        """Whether each of ``machines`` (all if None) is connected to each other one, and knows no
        other node."""
        machines = self.machines if machines is None else machines
        ids = {machine.id for machine in machines}
        return all(
            set(m.member.everyone()) == ids - {m.id}
            and len(m.member.others()) == len(ids) - 1
            and all(m.member.linked(id) for id in m.member.everyone())
            and set(m.member.reachable) == ids - {m.id}
            for m in machines
        )

    def join(self, count: int) -> list[Machine]:
        """A cluster of ``count`` nodes, complete."""
        machines = self.add(count)
        for left, right in itertools.pairwise(machines):
            left.member.meet(right.ip, right.port)
        self.wait(self.meshed, 30)
        return machines
