"""PostgreSQL's LISTEN, over a psycopg 3 connection that is used for nothing else."""

from typing import Any


class Notifications:
    """Hears about new rows; see ``Listener``.

    Args:
        connection: a ``psycopg.Connection``, owned by this object from now on.
        channel: the channel that ``add`` notifies.
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
        """Read all notifications. Raises psycopg.Error."""
        for _ in self._connection.notifies(timeout=0):
            pass

    def close(self) -> None:
        self._connection.close()
