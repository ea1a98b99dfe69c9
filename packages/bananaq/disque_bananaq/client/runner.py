"""The connections to one bananaq.

Owns the connection shared by all quick commands, and connections each lent to one waiting command
at a time. All are opened when first needed, and again after they broke. Commands are repeated where
that is safe, within a time limit.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import trio

from disque_bananaq.client.requests import passing
from disque_trio.notation.addresses import Address
from disque_trio.resp.command import Argument
from disque_trio.respclient.concurrency import library
from disque_trio.respclient.connection import Connection, Connector, Reply
from disque_trio.respclient.errors import ConnectionLost, DisqueError, LoadingError, TlsError
from disque_trio.respclient.pool import ConnectionPool
from disque_trio.respclient.retry import Retry


class CommandRunner:
    """Runs commands on a server. Once closed, it raises ``trio.ClosedResourceError`` instead.

    Args:
        connector: opens connections. A waiting command may take longer than its limit by at most
            the connector's timeout.
        address: the address of the server.
        retry_for: seconds to keep trying after a failure.
    """

    def __init__(self, connector: Connector, address: Address, *, retry_for: float) -> None:
        self._connector = connector
        self._address = address
        self._retry_for = retry_for
        self._shared: Connection | None = None
        self._opening = library().Lock()
        self._waiting = ConnectionPool(self._open, lambda: not self._closed)
        self._closed = False

    def retry(self) -> Retry:
        """Return a fresh time limit for one request."""
        return Retry(self._retry_for)

    async def ready(self) -> None:
        """Wait until the server can be reached.

        Raises:
            ConnectionLost: it could not be reached in time.
            TlsError: TLS failed; raised at once.
            ReplyError: it refused the password or the connection.
        """

        def passing(error: DisqueError) -> bool:
            return isinstance(error, ConnectionLost) and not isinstance(error, TlsError)

        await self.retry().run(self._connection, passing)

    async def run(self, *command: Argument, repeat: bool) -> Reply:
        """Run a command that does not wait, and return its reply.

        A command that certainly was not executed is sent again. One that may have been is sent
        again only if ``repeat`` is set.

        Raises:
            ConnectionLost: the server could not be reached in time, or a command that must not be
                repeated may or may not have been executed (``maybe_executed``).
            ReplyError: the server replied with an error.
        """

        async def attempt() -> Reply:
            connection = await self._connection()
            return await connection.execute(*command)

        def repeatable(error: DisqueError) -> bool:
            lost = isinstance(error, ConnectionLost) and not error.maybe_executed
            return passing(error) and (repeat or lost or isinstance(error, LoadingError))

        return await self.retry().run(attempt, repeatable)

    async def wait(
        self,
        command: Sequence[Argument],
        limit: float,
        too_late: Callable[[Reply], Awaitable[None]],
    ) -> Reply:
        """Run a command that waits for up to ``limit`` seconds, on a connection of its own.

        Nothing is repeated. If the caller is cancelled while the reply is on its way, ``too_late``
        gets the reply; see ``ConnectionPool.execute``.

        Raises the exceptions of ``run``.
        """
        return await self._waiting.execute(command, too_late, limit + self._connector.timeout)

    def close(self) -> None:
        """Close all connections and open no others."""
        self._closed = True
        if self._shared is not None:
            self._shared.close()
        self._waiting.close()

    async def _connection(self) -> Connection:
        async with self._opening:
            if self._shared is None or self._shared.closed:
                self._shared = await self._open()
            return self._shared

    async def _open(self) -> Connection:
        if self._closed:
            raise trio.ClosedResourceError("the client is closed")
        try:
            return await self._connector.open(self._address)
        except ConnectionLost as error:
            raise type(error)(f"{self._address}: {error}") from error
