"""Holds back packets about jobs while a thread writes what the node did.

Outgoing ones stay in the queues of their links. Incoming ones are stored, and handled later in
order. Packets about nodes pass.

If very much is stored, nothing more is read, until the others could take this node for dead. Then
further packets about jobs are dropped, as if they were lost on the way, so that heartbeats go on.
"""

from disque_trio.cluster.buslink import BusLink
from disque_trio.protocol.bus import FAIL, packet_type

MOST_HELD = 32 << 20  # bytes of stored packets


class PacketHold:
    """Delays packets about jobs in both directions until the records are in the file.

    Attributes:
        out: packets about jobs must not be sent.
        back: incoming ones are stored.
        size: bytes that are stored.
        drops: incoming ones are dropped instead.
    """

    def __init__(self) -> None:
        self.out = False
        self.back = False
        self.size = 0
        self.drops = False
        self._full_since = 0  # ms; 0: it was not seen to be full
        self._packets: list[tuple[BusLink, bytes]] = []

    def begin(self) -> None:
        """Start to hold back packets about jobs in both directions."""
        self.out = True
        self.back = True

    def put_by(self, link: BusLink, packet: bytes) -> bool:
        """Store ``packet``, which came from ``link``, or drop it; return whether that makes it
        full."""
        if self.drops:
            return False
        was_full = self.is_full()
        self._packets.append((link, packet))
        self.size += len(packet)
        return self.is_full() and not was_full

    def is_full(self) -> bool:
        """Whether so much is stored that nothing more may arrive, not even heartbeats."""
        return self.size > MOST_HELD and not self.drops

    def tires(self, now: int, patience: int) -> bool:
        """Whether it ``drops`` from ``now`` (ms) on, since it has been full for ``patience`` ms."""
        if not self.is_full():
            return False
        self._full_since = self._full_since or now
        self.drops = now - self._full_since >= patience
        return self.drops

    def end(self) -> list[tuple[BusLink, bytes]]:
        """Return the stored packets in order; later ones are not stored."""
        packets = self._packets
        self._packets = []
        self.size = 0
        self._full_since = 0
        self.drops = False
        self.back = False
        return packets

    def pick(self, link: BusLink) -> list[bytes]:
        """Take the packets that may be sent all the same from the queue of ``link``."""
        queue = link.queue
        link.queue = [packet for packet in queue if packet_type(packet) > FAIL]
        return [packet for packet in queue if packet_type(packet) <= FAIL]
