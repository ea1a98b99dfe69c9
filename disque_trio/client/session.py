"""The connections to one node.

Owns three kinds of them, all opened when first needed:

- the ``control`` connection, shared by all quick commands;
- the ``adds`` connection, shared by ADDJOB, which may wait for its replicas and must not hold up
  the WORKING and ACKJOB of the control connection meanwhile;
- connections that are lent for one blocking GETJOB at a time.

Opens those on which jobs are pushed, too, which belong to their ``Feed``.
"""

from typing import Final, Literal, TypeAlias

from disque_trio.client.nodes import Hello
from disque_trio.resp.command import Argument
from disque_trio.respclient.addresses import Address
from disque_trio.respclient.concurrency import fail_after, library
from disque_trio.respclient.connection import Connection, Connector
from disque_trio.respclient.errors import ConnectionLost, DisqueError, ReplyError, TooSlowError
from disque_trio.respclient.pool import ConnectionPool

Role: TypeAlias = Literal["control", "adds"]

_NOT_KNOWN: Final = ("ERR", "NOPROTO")
"""The codes of a node that does not know HELLO 3, or CONSUME."""


class Session:
    """The connections to one node. It ends with its control connection, or when the client leaves
    the node.

    Attributes:
        node_id, address: of the node.
        blocking: the connections for GETJOB.
        pushes: the node pushes jobs, as far as is known.
        knows_headers: it knows WITHHEADERS, as far as is known.
    """

    def __init__(self, hello: Hello, control: Connection, connector: Connector) -> None:
        self.node_id: str = hello.node_id
        self.address: Address = control.address
        self.blocking: ConnectionPool = ConnectionPool(self._open, lambda: self.current)
        self.pushes: bool = True
        self.knows_headers: bool = True
        self._connector = connector
        self._shared: dict[Role, Connection] = {"control": control}
        self._opening = library().Lock()
        self._jobs = 0
        self._left = False

    @property
    def alive(self) -> bool:
        """The node can still be talked to."""
        return not self._shared["control"].closed

    @property
    def current(self) -> bool:
        """The node can serve new requests: it is alive and was not left."""
        return self.alive and not self._left

    async def connection(self, role: Role) -> Connection:
        """The shared connection of that role.

        Raises:
            ConnectionLost: it cannot be opened; the session is over then.
        """
        connection = self._shared.get(role)
        if connection is not None and (role == "control" or not connection.closed):
            return connection
        async with self._opening:
            connection = self._shared.get(role)
            if connection is None or connection.closed:
                connection = self._shared[role] = await self._open()
            return connection

    async def open_for_pushes(self) -> Connection | None:
        """Open a connection that speaks RESP3. None if the node does not; ``pushes`` is unset then.

        Raises:
            ConnectionLost: it cannot be opened; the session is over then.
        """
        connection = await self._open()
        speaks = False
        try:
            speaks = await self.asks(connection, "HELLO", 3)
        finally:
            if not speaks:
                connection.close()
        return connection if speaks else None

    async def asks(self, connection: Connection, *command: Argument) -> bool:
        """Send what a node that cannot push does not know; returns whether this one does, and
        unsets ``pushes`` if not.

        Raises:
            ConnectionLost: the connection is lost, or there was no answer in time.
            ReplyError: the node refuses it now.
        """
        try:
            with fail_after(self._connector.timeout):
                await connection.execute(*command)
        except TooSlowError:
            connection.close("timed out")
            raise ConnectionLost(f"{self.address}: no answer to {command[0]!r}") from None
        except ReplyError as error:
            if error.code not in _NOT_KNOWN:
                raise
            self.pushes = False
        return self.pushes

    def job_taken(self) -> None:
        """A job of this node is in flight: its WORKING and ACKJOB belong here."""
        self._jobs += 1

    def job_settled(self) -> None:
        """The job is done with. A node that was left is hung up on after the last one."""
        self._jobs -= 1
        self._close_if_unused()

    def leave(self) -> None:
        """Make no new requests here; what is held from here can still be settled."""
        self._left = True
        self.blocking.close()
        self._close_if_unused()

    def close(self) -> None:
        """Close all connections that are not lent out."""
        for connection in self._shared.values():
            connection.close()
        self.blocking.close()

    def _close_if_unused(self) -> None:
        if self._left and self._jobs == 0:
            self.close()

    async def _open(self) -> Connection:
        try:
            return await self._connector.open(self.address)
        except DisqueError as error:
            self.close()
            raise ConnectionLost(f"{self.address}: {error}") from error
