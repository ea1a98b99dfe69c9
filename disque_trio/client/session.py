"""The connections to one node.

Owns three kinds of them, all opened when first needed:

- the *control* lane, shared by all quick commands;
- the *adds* lane, shared by ADDJOB, which may wait for its replicas and must not hold up the
  WORKING and ACKJOB of the control lane meanwhile;
- connections that are lent for one blocking GETJOB at a time.
"""

from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

import trio

from disque_trio.client.connection import Connection
from disque_trio.client.errors import ConnectionLost, DisqueError
from disque_trio.client.nodes import Address, Hello

Lane: TypeAlias = Literal["control", "adds"]


class Session:
    """A stay at one node. It ends with its control lane, or when the node is left."""

    def __init__(
        self, hello: Hello, control: Connection, connect: Callable[[Address], Awaitable[Connection]]
    ) -> None:
        self.node_id = hello.node_id
        self.address = control.address
        self._connect = connect
        self._lanes: dict[str, Connection] = {"control": control}
        self._opening = trio.Lock()
        self._idle: list[Connection] = []
        self._jobs = 0
        self._left = False

    @property
    def alive(self) -> bool:
        """The node can still be talked to."""
        return not self._lanes["control"].closed

    @property
    def current(self) -> bool:
        """The node can serve new requests: it is alive and was not left."""
        return self.alive and not self._left

    async def lane(self, name: Lane) -> Connection:
        """The shared connection of that name.

        Raises:
            ConnectionLost: it cannot be opened; the session is over then.
        """
        connection = self._lanes.get(name)
        if connection is not None and (name == "control" or not connection.closed):
            return connection
        async with self._opening:
            connection = self._lanes.get(name)
            if connection is None or connection.closed:
                connection = self._lanes[name] = await self._open()
            return connection

    async def borrow(self) -> Connection:
        """A connection for the caller alone, to be given back.

        Raises:
            ConnectionLost: it cannot be opened; the session is over then.
        """
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed:
                return connection
        return await self._open()

    def give_back(self, connection: Connection) -> None:
        """Return a borrowed connection, on which nothing is outstanding, for the next use."""
        if self.current:
            self._idle.append(connection)
        else:
            connection.close()

    def job_taken(self) -> None:
        """A job of this node is being worked on: its WORKING and ACKJOB belong here."""
        self._jobs += 1

    def job_settled(self) -> None:
        """The job is done with. A node that was left is hung up on after the last one."""
        self._jobs -= 1
        self._close_if_unused()

    def leave(self) -> None:
        """Make no new requests here; what is held from here can still be settled."""
        self._left = True
        for connection in self._idle:
            connection.close()
        self._idle.clear()
        self._close_if_unused()

    def close(self) -> None:
        """Close all connections that are not lent out."""
        for connection in (*self._lanes.values(), *self._idle):
            connection.close()
        self._idle.clear()

    def _close_if_unused(self) -> None:
        if self._left and self._jobs == 0:
            self.close()

    async def _open(self) -> Connection:
        try:
            return await self._connect(self.address)
        except DisqueError as error:
            self.close()
            raise ConnectionLost(f"{self.address}: {error}") from error
