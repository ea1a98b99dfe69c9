"""Limits the memory that incomplete packets take on the links of the bus.

Only packets with jobs can be large. Those are judged by their first bytes, before the rest of them
has come.
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

LEAST = 4 * MAX_CONTROL_PACKET  # bytes: a lower limit would cut links for what is no attack


class HalfPackets:
    """Counts the bytes of incomplete packets on all links.

    Args:
        config: limits.

    Attributes:
        holdings: what each link holds.
    """

    def __init__(self, config: Config, stats: Stats, log: Log) -> None:
        self.holdings: Holdings[BusLink] = Holdings()
        self._config = config
        self._stats = stats
        self._log = log
        self.apply()

    def apply(self) -> None:
        """Follow the settings. Packets that are not judged by their first bytes have to fit."""
        limit = self._config.maxmemory_bus.of(self._config.maxmemory)
        self.holdings.limit = max(limit, LEAST) if limit else 0

    def excess(self) -> list[BusLink]:
        """The links to close because the sum is too large: those that hold most."""
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
        halves: what packets may take.
        knows: whether the node with this id is a member of the cluster.
        wants_copy: whether the node would hold a copy of the job with this id.
        tell_once: puts a text, with who it is about, into the log, once.
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
        """Whether a large packet that begins with ``start`` is to be held.

        Raises:
            PacketError: its sender is no member of the cluster.
        """
        sender = packet_sender(start)
        if not self._knows(sender):
            raise PacketError("a large packet of a stranger")
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
                "another node sent a job that is larger than maxmemory-bus or proto-max-bulk-len "
                "allows, it was not taken",
                sender.decode("latin-1"),
            )
            return False
        return True
