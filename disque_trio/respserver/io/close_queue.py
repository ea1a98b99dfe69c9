"""Chooses the clients to disconnect at the end of a turn: those told to go, and those that hold the
most if all together exceed the limit.

Keeps the account of what they hold. It is only updated if something is left over from a turn, so a
client that is served at once costs nothing.
"""

from typing import Final

from disque_trio.process.logs import Log
from disque_trio.respserver.acl.user import User
from disque_trio.respserver.holdings import Holdings
from disque_trio.respserver.io.connection import Connection
from disque_trio.respserver.io.sparse_log import SparseLog
from disque_trio.respserver.io.stats import Stats
from disque_trio.respserver.over_budget import name_of

MOST_LINES: Final = 10  # log lines per second


class CloseQueue:
    """The clients to disconnect at the end of the turn.

    Attributes:
        due: there may be some.
        holdings: what each client makes the process hold between turns.
        by_user: the same for the clients of users with a limit for that (``%maxoutput``).
    """

    def __init__(self, stats: Stats, log: Log) -> None:
        self.due = False
        self.holdings: Holdings[Connection] = Holdings()
        self.by_user: dict[User, Holdings[Connection]] = {}
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
        held = 0 if connection.closed else connection.held
        self.holdings.note(connection, held)
        if self.holdings.over:
            self.due = True
        if connection.client.budgeted or connection.counted_for is not None:
            self._count_for_user(connection, held)

    def _count_for_user(self, connection: Connection, held: int) -> None:
        """Update what ``connection`` adds to what all clients of its user hold: ``held`` bytes."""
        client = connection.client
        user = client.user
        budget = user.budget
        limited = client.authenticated and budget is not None and budget.output > 0
        before = connection.counted_for
        if before is not None and not (limited and before is user):
            self._note_for(before, connection, 0)
            connection.counted_for = None
        if limited and budget is not None and (held or connection.counted_for is not None):
            connection.counted_for = user if held else None
            holdings = self._note_for(user, connection, held)
            holdings.limit = budget.output
            if holdings.over:
                self.due = True

    def _note_for(self, user: User, connection: Connection, held: int) -> Holdings[Connection]:
        """Set what ``connection`` holds for ``user``."""
        holdings = self.by_user.get(user)
        if holdings is None:
            holdings = self.by_user[user] = Holdings()
        holdings.note(connection, held)
        if not holdings.sizes:
            del self.by_user[user]
        return holdings

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
        return leaving + evicted + self._over_budget(now)

    def _over_budget(self, now: int) -> list[Connection]:
        """The connections to close because all clients of a user hold more than it may."""
        found: list[Connection] = []
        for user, holdings in self.by_user.items():
            for connection in holdings.excess():
                user.use.closed += 1
                self._log.warning(
                    now,
                    "client disconnected: the clients of its user together hold more than its "
                    "%maxoutput allows, and this one holds the most",
                    user=name_of(user),
                    client=connection.address,
                    held=connection.held,
                )
                found.append(connection)
        return found


def _stays(connection: Connection) -> bool:
    return connection.client.no_evict
