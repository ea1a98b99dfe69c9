"""Remembers jobs that ended a moment ago, so that late copies do not bring them back.

A copy that was sent before may still come, over a connection that was given up since. It must not
bring its job back.
"""

from typing import Final

from disque_trio.cluster.peers import Peers
from disque_trio.protocol import bus
from disque_trio.protocol.bus import PacketWriter

MAX_TOMBSTONES: Final = 10_000  # jobs; up to twice as many are remembered


class Tombstones:
    """The ids of the jobs that ended most recently on one node.

    Args:
        peers: the rest of the cluster.
        packets: makes this node's packets.
    """

    def __init__(self, peers: Peers, packets: PacketWriter) -> None:
        # To take the oldest one out of a dict is to look for it behind all that were there before.
        self._ids: dict[bytes, None] = {}
        self._older: dict[bytes, None] = {}
        self._peers = peers
        self._packets = packets

    def add(self, id: bytes) -> None:
        """Remember that the job ``id`` ended on all nodes."""
        if len(self._ids) >= MAX_TOMBSTONES:
            self._older = self._ids
            self._ids = {}
        self._ids[id] = None

    def has(self, id: bytes) -> bool:
        """Whether the job ``id`` ended not long ago."""
        return id in self._ids or id in self._older

    def refuse(self, sender: bytes, id: bytes) -> bool:
        """Whether the job ``id``, a copy of which arrived from ``sender``, has ended; tells
        ``sender`` so."""
        if not self.has(id):
            return False
        self._peers.send(sender, self._packets.about_job(bus.SETACK, id, 1))
        return True
