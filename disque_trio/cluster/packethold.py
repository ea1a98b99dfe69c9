"""Holds back packets about jobs while a thread writes what the node did.

Those that it has for others stay in the queues of their links. Those that come are put by, and
taken later, in their order. What is about the nodes themselves passes.
"""

from disque_trio.cluster.buslink import BusLink
from disque_trio.protocol.bus import FAIL, packet_type

MOST_HELD = 32 << 20  # bytes of packets that are put by


class PacketHold:
    """Delays packets about jobs in both directions until the records are in the file.

    Attributes:
        out: packets about jobs must not leave.
        back: those that come are put by.
        size: bytes that are put by.
    """

    def __init__(self) -> None:
        self.out = False
        self.back = False
        self.size = 0
        self._packets: list[tuple[BusLink, bytes]] = []

    def begin(self) -> None:
        """Nothing about jobs may leave, or be taken."""
        self.out = True
        self.back = True

    def put_by(self, link: BusLink, packet: bytes) -> bool:
        """Keep ``packet``, which came from ``link``; whether that is what makes it full."""
        was_full = self.is_full()
        self._packets.append((link, packet))
        self.size += len(packet)
        return self.is_full() and not was_full

    def is_full(self) -> bool:
        """Whether so much is put by that nothing more may come, not even signs of life."""
        return self.size > MOST_HELD

    def end(self) -> list[tuple[BusLink, bytes]]:
        """What was put by, in its order; what comes from now on is not."""
        packets = self._packets
        self._packets = []
        self.size = 0
        self.back = False
        return packets

    def pick(self, link: BusLink) -> list[bytes]:
        """Take those packets from the queue of ``link`` that may leave nevertheless."""
        queue = link.queue
        link.queue = [packet for packet in queue if packet_type(packet) > FAIL]
        return [packet for packet in queue if packet_type(packet) <= FAIL]
