"""Chooses the clients to disconnect at the end of a turn: those told to go, and those that hold the
most if all together exceed the limit.

Keeps the account of what they hold. It is only updated if something is left over from a turn, so a
client that is served at once costs nothing.
"""

from typing import Final

from disque_trio.process.logs import Log
from disque_trio.respserver.holdings import Holdings
from disque_trio.respserver.io.connection import Connection
from disque_trio.respserver.io.sparse_log import SparseLog
from disque_trio.respserver.io.stats import Stats

MOST_LINES: Final = 10  # log lines per second


class Departures:
    """The clients to disconnect at the end of the turn.

    Attributes:
        due: there may be some.
        holdings: what each client makes the process hold between turns.
    """

    def __init__(self, stats: Stats, log: Log) -> None:
        self.due = False
        self.holdings: Holdings[Connection] = Holdings()
        self._told: list[Connection] = []
        self._stats = stats
        self._log = SparseLog(log, MOST_LINES)

    def tell(self, connection: Connection) -> None:
        """Close ``connection`` at the end of the turn."""
        self._told.append(connection)
        self.due = True

    def count(self, connection: Connection) -> None:
        """Update the bytes that ``connection`` holds."""
        connection.parser.resized = False
        self.holdings.note(connection, 0 if connection.closed else connection.held)
        if self.holdings.over:
            self.due = True

    def bound(self, limit: int) -> None:
        """Limit the sum for all clients to ``limit`` bytes; 0: no limit."""
        self.holdings.limit = limit
        self.due = True

    def take(self, now: int) -> list[Connection]:
        """Return the connections to close at ``now`` (ms)."""
        self.due = False
        leaving = self._told
        self._told = []
        for connection in leaving:
            self.holdings.note(connection, 0)
        evicted = self.holdings.excess(_stays)
        self._stats.evicted_clients += len(evicted)
        for connection in evicted:
            self._log.warning(
                now,
                "client disconnected: clients together hold more than maxmemory-clients allows, "
                "and this one holds the most",
                client=connection.address,
                held=connection.held,
            )
        return leaving + evicted


def _stays(connection: Connection) -> bool:
    return connection.client.no_evict
