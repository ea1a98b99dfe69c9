"""A pool of connections for blocking commands, which are safe to cancel.

The delicate case is a cancellation while the reply is on its way. The connection is then
half-closed: the server sees the end of the stream, forgets the waiting client and closes the
connection, but what it sent before still arrives. The caller decides what to do with that.
"""

from collections.abc import Awaitable, Callable, Sequence

from disque_trio.resp.command import Argument
from disque_trio.respclient.concurrency import library
from disque_trio.respclient.connection import Batch, Connection, Reply
from disque_trio.respclient.errors import DisqueError

_CANCEL_SECONDS = 2.0
"""Seconds to wait for a reply on its way to a caller that was cancelled."""


class ConnectionPool:
    """Connections to one server, each lent to one blocking command at a time.

    Args:
        connect: opens a connection.
        reusable: returns whether a connection that is free again is still needed.
    """

    def __init__(
        self, connect: Callable[[], Awaitable[Connection]], reusable: Callable[[], bool]
    ) -> None:
        self._connect = connect
        self._reusable = reusable
        self._idle: list[Connection] = []

    async def execute(
        self,
        command: Sequence[Argument],
        too_late: Callable[[Reply], Awaitable[None]],
        limit: float | None = None,
    ) -> Reply:
        """Run a command that waits at most ``limit`` seconds, and return its reply.

        Without a limit it may wait forever. Nothing is repeated. If the caller is cancelled while
        the reply is on its way, ``too_late`` gets the reply, in a shielded scope, before the
        cancellation continues. There is no checkpoint between the arrival of the reply and the
        return.

        Raises:
            ConnectionLost: it could not connect, the connection broke, or no reply came in time.
            ReplyError: the server replied with an error.
            TypeError, ValueError: the command cannot be encoded.
        """
        connection = await self._borrow()
        try:
            batch = connection.submit([command])
        except (TypeError, ValueError):
            self._give_back(connection)
            raise
        try:
            if limit is None:
                await batch.done.wait()
            else:
                with library().move_on_after(limit):
                    await batch.done.wait()
                if not batch.done.is_set():
                    # The peer is gone without a trace.
                    connection.close("no answer")
        except BaseException:
            try:
                with library().move_on_after(_CANCEL_SECONDS, shield=True):
                    await _cancel(connection, batch, too_late)
            finally:
                connection.close()
            raise
        self._give_back(connection)
        [reply] = batch.replies
        if isinstance(reply, DisqueError):
            raise reply
        return reply

    def close(self) -> None:
        """Close all connections that are not lent out."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    async def _borrow(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed:
                return connection
        return await self._connect()

    def _give_back(self, connection: Connection) -> None:
        if self._reusable() and not connection.closed:
            self._idle.append(connection)
        else:
            connection.close()


async def _cancel(
    connection: Connection, batch: Batch, too_late: Callable[[Reply], Awaitable[None]]
) -> None:
    """Tell the server that nobody waits any more, and handle a reply that comes all the same."""
    if connection.withdraw(batch):
        return
    if not batch.done.is_set():
        connection.hang_up()
        await batch.done.wait()
    [reply] = batch.replies
    if reply is None or isinstance(reply, DisqueError):
        return
    try:
        await too_late(reply)
    except DisqueError:
        pass  # the server delivers it again after its time
