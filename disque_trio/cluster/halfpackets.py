"""Limits the memory of incomplete packets on the links of the bus.

Only packets with jobs can be large. They are judged by their first bytes, before the rest has
arrived.
"""

from collections.abc import Callable

from disque_trio.cluster.buslink import BusLink
from disque_trio.config import Config
from disque_trio.process.logs import Log
from disque_trio.protocol.bus import (
    MAX_CONTROL_PACKET,
    REPLJOB,
    UPDATEJOB,
    PacketError,
    first_job_id,
    packet_length,
    packet_sender,
    packet_type,
)
from disque_trio.respserver.holdings import Holdings
from disque_trio.respserver.io.stats import Stats

LEAST = 4 * MAX_CONTROL_PACKET  # bytes: a lower limit would close links that do no harm


class HalfPackets:
    """Counts the bytes of incomplete packets on all links.

    Args:
        config: limits.

    Attributes:
        holdings: the bytes that each link holds.
    """

    def __init__(self, config: Config, stats: Stats, log: Log) -> None:
        self.holdings: Holdings[BusLink] = Holdings()
        self._config = config
        self._stats = stats
        self._log = log
        self.apply()

    def apply(self) -> None:
        """Apply the settings. Packets that are not judged by their first bytes have to fit."""
        limit = self._config.maxmemory_bus.of(self._config.maxmemory)
        self.holdings.limit = max(limit, LEAST) if limit else 0

    def excess(self) -> list[BusLink]:
        """The links to close because the sum is too large: those that hold the most."""
        chosen = self.holdings.excess()
        for link in chosen:
            self._stats.evicted_cluster_links += 1
            self._log.warning(
                "connection to a node closed: incomplete packets take more than maxmemory-bus "
                "allows, and this connection holds the most",
                node=link.remote_ip,
                held=link.parser.pending,
            )
        return chosen


class LargePackets:
    """Decides which large packets to accept.

    Args:
        halves: have the limit.
        knows: whether the node with this id is a member of the cluster.
        wants_copy: whether the node would hold a copy of the job with this id.
        tell_once: logs a text once per node.
    """

    def __init__(
        self,
        halves: HalfPackets,
        config: Config,
        stats: Stats,
        knows: Callable[[bytes], bool],
        wants_copy: Callable[[bytes], bool],
        tell_once: Callable[[str, str], None],
    ) -> None:
        self._holdings = halves.holdings
        self._config = config
        self._stats = stats
        self._knows = knows
        self._wants_copy = wants_copy
        self._tell_once = tell_once

    def wants(self, start: bytes) -> bool:
        """Whether to hold a large packet that begins with ``start``.

        Raises:
            PacketError: its sender is not a member of the cluster.
        """
        sender = packet_sender(start)
        if not self._knows(sender):
            raise PacketError("a large packet from a stranger")
        most = self._holdings.limit
        if packet_type(start) in (REPLJOB, UPDATEJOB):
            if not self._wants_copy(first_job_id(start)):
                self._stats.cluster_packets_refused += 1
                return False
            longest = self._config.proto_max_bulk_len + MAX_CONTROL_PACKET
            most = min(most, longest) if most else longest
        if most and packet_length(start) > most:
            self._stats.cluster_packets_refused += 1
            self._tell_once(
                "a job from another node was refused: it is larger than maxmemory-bus or "
                "proto-max-bulk-len allows",
                sender.decode("latin-1"),
            )
            return False
        return True
