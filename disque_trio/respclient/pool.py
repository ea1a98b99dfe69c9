"""A pool of connections for blocking commands, which are safe to cancel.

The delicate moment is a cancellation while the reply is on its way. The connection is then
half-closed: the server sees the end, forgets the waiting client and closes, and whatever it had
sent before still arrives. The caller says what becomes of it.
"""

from collections.abc import Awaitable, Callable, Sequence

from disque_trio.resp.command import Argument
from disque_trio.respclient.concurrency import library
from disque_trio.respclient.connection import Batch, Connection, Reply
from disque_trio.respclient.errors import DisqueError

_CANCEL_SECONDS = 2.0
"""How long a reply is waited for that is on its way to a caller who was cancelled."""


class ConnectionPool:
    """Connections to one server, each lent to one blocking command at a time.

    Args:
        connect: opens a connection.
        reusable: tells whether a connection that is free again will be needed.
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
        """Run a command that waits for ``limit`` seconds at most, and return its reply.

        Without a limit it may wait for ever. Nothing is repeated. When the caller is cancelled and
        the reply is on its way, it is handed to ``too_late``, in a shielded scope, before the
        cancellation goes on. Between the arrival of the reply and the return there is no
        checkpoint.

        Raises:
            ConnectionLost: there is no connection, it broke, or there was no reply in time.
            ReplyError: an error reply.
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
                    # A peer that is gone without a word.
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
        """Close all connections that are not lent."""
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
    """Tell the server that nobody waits any more, and deal with a reply that comes all the same."""
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
        pass  # the server delivers it again when its time is over
