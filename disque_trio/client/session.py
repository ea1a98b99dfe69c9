"""The connections to one node.

Owns three kinds of them, all opened when first needed:

- the ``control`` connection, shared by all quick commands;
- the ``adds`` connection, shared by ADDJOB, which may wait for its replicas and must not hold up
  the WORKING and ACKJOB of the control connection meanwhile;
- connections that are lent for one blocking GETJOB at a time.
"""

from typing import Literal, TypeAlias

import trio

from disque_trio.client.nodes import Hello
from disque_trio.respclient.connection import Connection, Connector
from disque_trio.respclient.errors import ConnectionLost, DisqueError
from disque_trio.respclient.pool import ConnectionPool

Role: TypeAlias = Literal["control", "adds"]


class Session:
    """The connections to one node. It ends with its control connection, or when the client leaves
    the node.

    Attributes:
        node_id, address: of the node.
        blocking: the connections for GETJOB.
    """

    def __init__(self, hello: Hello, control: Connection, connector: Connector) -> None:
        self.node_id = hello.node_id
        self.address = control.address
        self.blocking = ConnectionPool(self._open, lambda: self.current)
        self._connector = connector
        self._shared: dict[Role, Connection] = {"control": control}
        self._opening = trio.Lock()
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
