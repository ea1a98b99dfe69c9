"""PostgreSQL's LISTEN, over a connection of psycopg 3 that is used for nothing else."""

from typing import Any


class Notifications:
    """Hears of new rows; see ``Listener``.

    Args:
        connection: a ``psycopg.Connection``, which this owns from now on.
        channel: what ``add`` notifies.
    """

    def __init__(self, connection: Any, channel: str) -> None:
        from psycopg import sql

        self._connection = connection
        try:
            connection.rollback()
            connection.autocommit = True
            connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        except BaseException:
            connection.close()
            raise

    def fileno(self) -> int:
        number: int = self._connection.fileno()
        return number

    def drain(self) -> None:
        """Read what there is. Raises psycopg.Error."""
        for _ in self._connection.notifies(timeout=0):
            pass

    def close(self) -> None:
        self._connection.close()
