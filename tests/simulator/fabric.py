"""The network between the machines, as TCP presents it to its users.

On one connection, everything arrives in order, or the connection breaks and what was on its way is
lost; each end learns that at a different time. A path that is cut swallows packets silently: once
it is repaired, they arrive late, or the connection turns out to be broken.
"""

from functools import partial
from random import Random
from typing import Protocol

from disque_trio.cluster.links import Link
from disque_trio.protocol import bus
from tests.simulator.draws import below
from tests.simulator.events import MS, SECOND, EventLoop

BUS_OFFSET = 10_000
# Packets that a node repeats if there is no answer; they can arrive twice in a row.
SAID_AGAIN = frozenset(
    (bus.REPLJOB, bus.GOTJOB, bus.ENQUEUE, bus.QUEUED, bus.SETACK, bus.WILLQUEUE, bus.GOTACK,
     bus.DELJOB, bus.WORKING, bus.NEEDJOBS, bus.PAUSE)
)  # fmt: skip
CONNECT_TRIES = (0, 1 * SECOND, 3 * SECOND, 7 * SECOND)  # when SYNs are sent


class Host(Protocol):
    """A machine, from the view of the network."""

    index: int
    ip: str
    port: int
    up: bool
    off: bool
    incarnation: int

    def link_accepted(self, link: "End") -> None: ...
    def link_up(self, link: "End") -> None: ...
    def link_lost(self, link: "End") -> None: ...
    def packets(self, link: "End", packets: list[bytes]) -> None: ...


class End(Link):
    """One end of a connection.

    Attributes:
        buffer: packets of this turn.
        wire: the connection; None until it exists.
        side: 0: opened it, 1: accepted it.
        hung_since: virtual time since which nothing that it sends arrives, in µs; 0: everything
            does.
    """

    def __init__(self, fabric: "Fabric", host: Host, outgoing: bool) -> None:
        super().__init__(outgoing)
        self.fabric = fabric
        self.host = host
        self.incarnation = host.incarnation
        self.buffer: list[bytes] = []
        self.wire: Wire | None = None
        self.side = 0 if outgoing else 1
        self.closed = False
        self.hung_since = 0

    def send(self, packet: bytes) -> None:
        if self.up:
            if not self.buffer:
                self.fabric.unsent.append(self)
            self.buffer.append(packet)

    def close(self) -> None:
        # Anything sent in this turn still leaves with the turn.
        self.closed = True
        self.up = False
        if self.wire is not None and not self.buffer:
            self.wire.hang_up(self.side)

    def flush(self) -> None:
        """Pass what was sent to the network."""
        packets, self.buffer = self.buffer, []
        wire = self.wire
        if packets and wire is not None:
            wire.transmit(self.side, packets)
            if self.closed:
                wire.hang_up(self.side)

    @property
    def alive(self) -> bool:
        """Whether its process still runs and has not closed it."""
        return not self.closed and self.host.up and self.host.incarnation == self.incarnation


class Wire:
    """An established connection."""

    def __init__(self, fabric: "Fabric", ends: tuple[End, End]) -> None:
        self.fabric = fabric
        self.ends = ends
        self.broken = False
        self.hung: tuple[list[list[bytes]], list[list[bytes]]] = ([], [])
        one, two = ends[0].host.index, ends[1].host.index
        self._paths = ((one, two), (two, one))
        self._arrived = [0, 0]  # when the last packet of each direction arrives

    def path(self, side: int) -> tuple[int, int]:
        """Sender and receiver of what the end ``side`` sends."""
        return self._paths[side]

    def transmit(self, side: int, packets: list[bytes]) -> None:
        """Send ``packets`` from the end ``side``."""
        if self.broken:
            return
        fabric = self.fabric
        loop = fabric.loop
        path = self._paths[side]
        hung = self.hung[side]
        if hung or path in fabric.cut:
            if not hung:
                self.ends[side].hung_since = loop.now
            hung.append(packets)
            return
        if not self.ends[1 - side].alive:
            self.break_off()  # the answer is a reset
            return
        arrival = loop.now + fabric.delay()
        if arrival <= self._arrived[side]:
            arrival = self._arrived[side] + 1
        self._arrived[side] = arrival
        loop.at(arrival, partial(self._arrive, side, packets))

    def _arrive(self, side: int, packets: list[bytes]) -> None:
        end = self.ends[1 - side]
        if self.broken or not end.alive:
            return
        fabric = self.fabric
        if fabric.duplicates and fabric.rng.random() < fabric.duplicates:
            packets = [
                packet
                for packet in packets
                for _ in range(2 if bus.packet_type(packet) in SAID_AGAIN else 1)
            ]
        end.host.packets(end, packets)

    def repaired(self, side: int, deliver: bool) -> None:
        """The path is repaired: delayed packets arrive, or the connection breaks."""
        waiting = self.hung[side][:]
        self.hung[side].clear()
        self.ends[side].hung_since = 0
        if not waiting:
            return
        if deliver:
            for packets in waiting:
                self.transmit(side, packets)
        else:
            self.break_off()

    def hang_up(self, side: int) -> None:
        """The end ``side`` was closed: the other end learns that after receiving what was sent
        before."""
        if self.broken or self.path(side) in self.fabric.cut:
            return
        at = max(self.fabric.loop.now + self.fabric.delay(), self._arrived[side])
        self.fabric.loop.at(at + 1, self.break_off)

    def break_off(self, slowest: int = 0) -> None:
        """Lose everything on its way; both ends learn that after at most ``slowest`` µs (0: two
        seconds, usually much less)."""
        if self.broken:
            return
        self.broken = True
        self.fabric.wires.pop(self, None)
        self.hung[0].clear()
        self.hung[1].clear()
        rng = self.fabric.rng
        for end in self.ends:
            limit = slowest or (50 * MS if rng.random() >= self.fabric.late else 2 * SECOND)
            self.fabric.loop.after(rng.randrange(limit), lambda end=end: lose(end))  # type: ignore[misc]


def lose(end: End) -> None:
    """Tell the end that its connection is gone."""
    if end.alive:
        end.up = False
        end.buffer.clear()
        end.host.link_lost(end)


class Fabric:
    """All connections.

    Attributes:
        cut: (from, to) of machines between which packets vanish, by index.
        duplicates: chance that packets come twice.
        tail: chance that a packet takes far longer than usual.
        late: chance that a process hears only much later that its connection is gone.
        unsent: ends with packets from this turn.
    """

    def __init__(self, loop: EventLoop, rng: Random, tail: float, duplicates: float) -> None:
        self.loop = loop
        self.rng = rng
        self.tail = tail
        self.longest_tail = 1500 * MS
        self.late = 0.2
        self.duplicates = duplicates
        self.base = 1 * MS
        self.cut: set[tuple[int, int]] = set()
        self.hosts: dict[tuple[str, int], Host] = {}
        self.wires: dict[Wire, None] = {}
        self.unsent: list[End] = []

    def add(self, host: Host) -> None:
        """Make ``host`` reachable."""
        self.hosts[host.ip, host.port + BUS_OFFSET] = host

    def delay(self) -> int:
        """How long a packet takes, in µs."""
        rng = self.rng
        delay = self.base // 4 + below(rng, self.base)
        if self.tail and rng.random() < self.tail:
            delay += int(rng.random() ** 3 * self.longest_tail)
        return delay

    def flush(self) -> None:
        """The turn has ended: send."""
        for end in self.unsent:
            end.flush()
        self.unsent.clear()

    def discard(self) -> None:
        """The process died before it could send."""
        for end in self.unsent:
            end.buffer.clear()
        self.unsent.clear()

    # ---- connecting -------------------------------------------------------------------------

    def connect(self, host: Host, ip: str, port: int) -> End:
        """Begin to open a connection from ``host``."""
        end = End(self, host, True)
        patience = self.rng.randrange(1, len(CONNECT_TRIES) + 1)
        self.loop.after(self.delay(), lambda: self._try(end, ip, port, 0, patience))
        return end

    def _try(self, end: End, ip: str, port: int, tried: int, patience: int) -> None:
        if not end.alive:
            return
        source = end.host
        target = self.hosts.get((ip, port))
        if target is not None and (
            (source.index, target.index) in self.cut or (target.index, source.index) in self.cut
        ):
            if tried + 1 == patience:
                lose(end)
                return
            wait = CONNECT_TRIES[tried + 1] - CONNECT_TRIES[tried]
            self.loop.after(wait, lambda: self._try(end, ip, port, tried + 1, patience))
            return
        if target is None or not target.up:
            end.refused = target is not None and not target.off
            self.loop.after(self.delay(), lambda: lose(end))
            return
        other = End(self, target, False)
        wire = Wire(self, (end, other))
        self.wires[wire] = None
        end.wire = other.wire = wire
        other.local_ip, other.remote_ip = target.ip, source.ip
        end.local_ip, end.remote_ip = source.ip, target.ip
        other.up = True
        target.link_accepted(other)
        self.loop.after(self.delay(), lambda: self._established(end))

    def _established(self, end: End) -> None:
        assert end.wire is not None
        if not end.alive:
            # It has given up meanwhile; the other side must not keep half a connection.
            end.wire.break_off()
        elif not end.wire.broken:
            end.up = True
            end.host.link_up(end)

    # ---- faults -----------------------------------------------------------------------------

    def cut_paths(self, paths: list[tuple[int, int]]) -> None:
        """Let packets vanish on ``paths`` (from, to)."""
        self.cut.update(paths)

    def mend_paths(self, paths: list[tuple[int, int]]) -> None:
        """Let packets through on ``paths`` again."""
        self.cut.difference_update(paths)
        for wire in list(self.wires):
            for side in (0, 1):
                if wire.path(side) not in self.cut:
                    wire.repaired(side, self.rng.random() < 0.7)

    def break_links(self, source: int, target: int) -> None:
        """Break all connections between two machines."""
        for wire in list(self.wires):
            if wire.path(0) in ((source, target), (target, source)):
                wire.break_off()

    def died(self, host: Host, silently: bool) -> None:
        """The process of ``host`` is gone; ``silently``: so is the machine, so nobody is told."""
        for wire in list(self.wires):
            if host.index in wire.path(0):
                cut = wire.path(0) in self.cut or wire.path(1) in self.cut
                wire.break_off(8 * SECOND if silently or cut else 0)


class MachineNetwork:
    """The network, for the membership of one machine."""

    def __init__(self, fabric: Fabric, host: Host) -> None:
        self._fabric = fabric
        self._host = host

    def connect(self, ip: str, port: int) -> End:
        return self._fabric.connect(self._host, ip, port)
