"""Remembers jobs that ended a moment ago, so that late copies do not bring them back.

A copy that was sent before may still come, over a connection that was given up since. It must not
bring its job back.
"""

from collections import deque
from typing import Final

from disque_trio.cluster.peers import Peers
from disque_trio.protocol import bus
from disque_trio.protocol.bus import PacketWriter

MAX_TOMBSTONES: Final = 20_000  # jobs


class Tombstones:
    """The ids of the jobs that ended most recently on one node.

    Args:
        peers: the rest of the cluster.
        packets: makes this node's packets.
    """

    def __init__(self, peers: Peers, packets: PacketWriter) -> None:
        self._ids: set[bytes] = set()
        self._order: deque[bytes] = deque()  # a dict would search for its first
        self._peers = peers
        self._packets = packets

    def add(self, id: bytes) -> None:
        """Remember that the job ``id`` ended on all nodes."""
        if id in self._ids:
            return
        if len(self._ids) >= MAX_TOMBSTONES:
            self._ids.remove(self._order.popleft())
        self._ids.add(id)
        self._order.append(id)

    def refuse(self, sender: bytes, id: bytes) -> bool:
        """Whether the job ``id``, a copy of which arrived from ``sender``, has ended; tells
        ``sender`` so."""
        if id not in self._ids:
            return False
        self._peers.send(sender, self._packets.about_job(bus.SETACK, id, 1))
        return True
