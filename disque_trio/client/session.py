"""The connections to one node.

Owns three kinds of connections, all opened when first needed:

- the ``control`` connection, shared by all quick commands;
- the ``adds`` connection, shared by ADDJOBs: they may wait for replicas, and must not hold up
  WORKING and ACKJOB on the control connection meanwhile;
- connections for GETJOB, each lent to one blocking call at a time.

Also opens the connections on which jobs are pushed; these belong to their ``Feed``.
"""

from typing import Final, Literal, TypeAlias

from disque_trio.client.nodes import Hello, parse_hello
from disque_trio.notation.addresses import Address
from disque_trio.resp.command import Argument
from disque_trio.respclient.concurrency import fail_after, library
from disque_trio.respclient.connection import Batch, Connection, Connector
from disque_trio.respclient.errors import (
    ConnectionLost,
    DisqueError,
    ProtocolError,
    ReplyError,
    TooSlowError,
)
from disque_trio.respclient.pool import ConnectionPool

Role: TypeAlias = Literal["control", "adds"]

_NOT_KNOWN: Final = ("ERR", "NOPROTO")
"""Error codes of a node that does not know HELLO 3 or CONSUME."""


class Session:
    """The connections to one node.

    A session ends when its control connection does, or when the client leaves the node.

    Attributes:
        node_id, address: the id and the address of the node. name: the address as text.
        blocking: the connections for GETJOB.
        pushes, pushes_by_pattern: whether the node can push jobs, and those of queues that match
            patterns, as far as is known.
        knows_headers: whether the node knows WITHHEADERS, as far as is known.
        knows_soon: whether the node knows ONLOSS soon and WITHCANCELS, as far as is known.
        hello: what the node said of the cluster.
        hints: whether the node can tell which of several nodes is best for a queue (QOWNER), as far
            as is known.
        used: when requests were made here last, if this is not the node in use.
    """

    def __init__(self, hello: Hello, control: Connection, connector: Connector) -> None:
        self.node_id: str = hello.node_id
        self.address: Address = control.address
        self.name: str = str(control.address)
        self.blocking: ConnectionPool = ConnectionPool(self._open, lambda: self.current)
        self.pushes: bool = True
        self.pushes_by_pattern: bool = True
        self.knows_headers: bool = True
        self.knows_soon: bool = True
        self.hello = hello
        self.hints: bool = len(hello.nodes) > 1
        self.used: float = 0.0
        self._connector = connector
        self._shared: dict[Role, Connection] = {"control": control}
        self._opening = library().Lock()
        self._jobs = 0
        self._left = False

    @property
    def alive(self) -> bool:
        """Whether the node can still be talked to."""
        return not self._shared["control"].closed

    @property
    def current(self) -> bool:
        """Whether to make new requests here: the node is alive and was not left."""
        return self.alive and not self._left

    def submit(self, *command: Argument) -> Batch:
        """Send a quick command, without waiting for its reply."""
        return self._shared["control"].submit([command])

    def ready(self, role: Role) -> bool:
        """Whether the shared connection for ``role`` is open."""
        connection = self._shared.get(role)
        return connection is not None and not connection.closed

    async def connection(self, role: Role) -> Connection:
        """Return the shared connection for ``role``.

        Raises:
            ConnectionLost: it cannot be opened; the session has then ended.
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
        """Open a connection that speaks RESP3. If the node cannot, return None.

        Raises:
            ConnectionLost: it cannot be opened; the session has then ended.
        """
        connection = await self._open()
        speaks = False
        try:
            speaks = await self.asks(connection, "HELLO", 3)
        finally:
            if not speaks:
                connection.close()
        if not speaks:
            self.cannot_push()
        return connection if speaks else None

    async def asks(self, connection: Connection, *command: Argument) -> bool:
        """Send a command that only nodes that can push know, and return whether this one does.

        Raises:
            ConnectionLost: the connection is lost, or there was no reply in time.
            ReplyError: the node refuses the command for another reason.
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
            return False
        return True

    def cannot_push(self, *, by_pattern: bool = False) -> None:
        """Note that the node cannot push jobs at all, or not ``by_pattern``."""
        self.pushes_by_pattern = False
        self.pushes = self.pushes and by_pattern

    def job_taken(self) -> None:
        """Note that a job of this node is in flight: its WORKING and ACKJOB belong here."""
        self._jobs += 1

    def job_settled(self) -> None:
        """Note that such a job is settled. After the last one, a node that was left is closed."""
        self._jobs -= 1
        self._close_if_unused()

    def leave(self) -> None:
        """Make no new requests here; jobs that are held from here can still be settled."""
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


async def open_session(connector: Connector, address: Address) -> Session:
    """Connect to the node at ``address``.

    Raises:
        DisqueError: it cannot be reached, refuses to let us in, or is no Disque node.
    """
    connection = await connector.open(address)
    try:
        with fail_after(connector.timeout):
            hello = parse_hello(await connection.execute("HELLO"), address)
    except TooSlowError as error:
        connection.close()
        raise ProtocolError("no answer to HELLO") from error
    except BaseException:
        connection.close()
        raise
    return Session(hello, connection, connector)
