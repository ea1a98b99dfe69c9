"""The connections to one bananaq.

Owns the lane that all quick commands share, and the connections that are lent for one waiting
command at a time. All are opened when first needed, and again when they broke; commands are
repeated where that is safe, within a time limit.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import trio

from disque_trio.bananaq.client.requests import passing
from disque_trio.client.connection import Argument, Batch, Connection, Reply, open_stream, why
from disque_trio.client.errors import ConnectionLost, DisqueError, LoadingError, ReplyError
from disque_trio.client.nodes import Address
from disque_trio.client.router import Retry

_CALL_OFF_SECONDS = 2.0
"""How long a reply is waited for that is on its way to a caller who was cancelled."""


class Link:
    """Runs commands on a server. When it is closed they raise `trio.ClosedResourceError`.

    Args:
        nursery: where connections are served; it outlives all commands.
        address: of the server.
        password: sent with AUTH on every new connection, or None.
        retry_for: seconds to go on trying after a failure.
        connect_timeout: seconds for one connection to be ready, and more than that a waiting
            command may take longer than it was told to.
    """

    def __init__(
        self,
        nursery: trio.Nursery,
        address: Address,
        *,
        password: str | None,
        retry_for: float,
        connect_timeout: float,
    ) -> None:
        self.address = address
        self._nursery = nursery
        self._password = password
        self._retry_for = retry_for
        self._connect_timeout = connect_timeout
        self._lane: Connection | None = None
        self._opening = trio.Lock()
        self._idle: list[Connection] = []
        self._closed = False

    def retry(self) -> Retry:
        """A fresh time limit for one request."""
        return Retry(self._retry_for)

    async def ready(self) -> None:
        """Return when the server can be reached.

        Raises:
            ConnectionLost: it could not be reached in time.
            ReplyError: it refused the password or the connection.
        """
        retry = self.retry()
        while True:
            try:
                await self._quick_lane()
                return
            except ConnectionLost:
                if not await retry.again():
                    raise

    async def run(self, *command: Argument, repeat: bool) -> Reply:
        """Run a command that does not wait, and return its reply.

        A command that certainly was not executed is sent again; one that may have been only if
        `repeat` says that this does no harm.

        Raises:
            ConnectionLost: the server could not be reached in time, or the fate of a command that
                is not to be repeated is unknown (`maybe_executed`).
            ReplyError: an error reply.
        """
        retry = self.retry()
        while True:
            failure: DisqueError
            try:
                connection = await self._quick_lane()
                return await connection.execute(*command)
            except ConnectionLost as error:
                if error.maybe_executed and not repeat:
                    raise
                failure = error
            except ReplyError as error:
                if not passing(error) or not (repeat or isinstance(error, LoadingError)):
                    raise
                failure = error
            if not await retry.again():
                raise failure

    async def wait(
        self,
        command: Sequence[Argument],
        limit: float,
        too_late: Callable[[Reply], Awaitable[None]],
    ) -> Reply:
        """Run a command that waits for up to `limit` seconds, on a connection of its own.

        Nothing is repeated. When the caller is cancelled and the reply is on its way, it is handed
        to `too_late`, in a shielded scope, before the cancellation goes on. Between the arrival of
        the reply and the return there is no checkpoint.

        Raises: as `run`.
        """
        connection = await self._borrow()
        try:
            batch = connection.submit([command])
        except (TypeError, ValueError):
            self._give_back(connection)
            raise
        try:
            with trio.move_on_after(limit + self._connect_timeout):
                await batch.done.wait()
            if not batch.done.is_set():
                # A peer that is gone without a word.
                connection.close("no answer")
        except BaseException:
            with trio.move_on_after(_CALL_OFF_SECONDS, shield=True):
                await _call_off(connection, batch, too_late)
            connection.close()
            raise
        self._give_back(connection)
        [reply] = batch.replies
        if isinstance(reply, DisqueError):
            raise reply
        return reply

    def close(self) -> None:
        """Close all connections; no other will be opened."""
        self._closed = True
        if self._lane is not None:
            self._lane.close()
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    async def _quick_lane(self) -> Connection:
        async with self._opening:
            if self._lane is None or self._lane.closed:
                self._lane = await self._connect()
            return self._lane

    async def _borrow(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed:
                return connection
        return await self._connect()

    def _give_back(self, connection: Connection) -> None:
        if self._closed:
            connection.close()
        elif not connection.closed:
            self._idle.append(connection)

    async def _connect(self) -> Connection:
        if self._closed:
            raise trio.ClosedResourceError("the client is closed")
        connection: Connection | None = None
        try:
            with trio.fail_after(self._connect_timeout):
                connection = Connection(await open_stream(self.address), self.address)
                self._nursery.start_soon(connection.run)
                if self._password is not None:
                    await connection.execute("AUTH", self._password)
        except (OSError, trio.TooSlowError) as error:
            if connection is not None:
                connection.close()
            reason = "timed out" if isinstance(error, trio.TooSlowError) else why(error)
            raise ConnectionLost(f"{self.address}: {reason}") from error
        except ConnectionLost as error:
            # It is the AUTH that may have been executed, not what the caller wants.
            raise ConnectionLost(str(error)) from error
        except BaseException:
            if connection is not None:
                connection.close()
            raise
        return connection


async def _call_off(
    connection: Connection, batch: Batch, too_late: Callable[[Reply], Awaitable[object]]
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
        pass  # the time for which it is held does it
