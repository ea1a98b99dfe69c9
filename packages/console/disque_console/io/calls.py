"""Sends visitors' commands to one node, any node or all nodes. Errors are values."""

from collections.abc import Sequence
from itertools import compress
from typing import Final, TypeAlias

import trio

from disque_console.model.action import Order, Where
from disque_trio.client.nodes import parse_told
from disque_trio.overview.nodes import Nodes
from disque_trio.resp.command import Argument
from disque_trio.respclient.connection import Connection, Connector, Reply
from disque_trio.respclient.errors import ConnectionLost, DisqueError
from disque_trio.respclient.login import Login

LIMIT: Final = 5.0  # s for an answer
LONG_LIMIT: Final = 60.0  # s for commands that walk a queue on all nodes

# Commands that wait for other nodes, and how long an answer to them may take.
_WAITING: Final = {
    **dict.fromkeys(("ADDJOB", "UPDATEJOB", "WAITJOB"), LIMIT),
    **dict.fromkeys(("QPURGE", "QMOVE", "REDRIVE"), LONG_LIMIT),
}

Answer: TypeAlias = "tuple[str, Reply]"
"""The address of a node, and its reply; a ``DisqueError`` if it did not answer."""


class Calls:
    """Sends commands to the nodes, as one user, over a connection to each. Commands that wait for
    other nodes have connections of their own, since replies come in order.

    Args:
        nursery: where connections are served.
        nodes: the known nodes.
        login: of the user.
    """

    def __init__(self, nursery: trio.Nursery, nodes: Nodes, login: Login) -> None:
        self._nodes = nodes
        self._connector = Connector(nursery, login, LIMIT)
        self._connections: dict[str, Connection] = {}
        self._own: set[Connection] = set()  # of commands that wait for other nodes
        self._opening: dict[str, trio.Lock] = {}
        self._failures: dict[str, tuple[float, str]] = {}  # until when not to try again, and why
        self._closed = False

    async def to(self, address: str, *command: Argument) -> Reply:
        """The reply of the node at ``address``; errors are returned."""
        [reply] = await self.many(address, [command])
        return reply

    async def many(self, address: str, commands: Sequence[Sequence[Argument]]) -> list[Reply]:
        """The replies of a node to several commands sent at once; errors are in the list."""
        if not commands:
            return []
        limit = max(_WAITING.get(str(command[0]).upper(), 0.0) for command in commands)
        try:
            if limit:
                return await self._execute_apart(address, commands, limit)
            connection = await self._connection(address)
        except DisqueError as error:
            return [error for _ in commands]
        with trio.move_on_after(LIMIT):
            return await connection.execute_many(commands)
        # Later commands would wait for the missing reply.
        connection.close("no answer in time")
        lost = _too_late(address, LIMIT)
        self._failures[address] = trio.current_time() + LIMIT, str(lost)
        return [lost for _ in commands]

    async def every(self, *command: Argument, but: str = "") -> list[Answer]:
        """The replies of all reachable nodes, by address, except ``but``."""
        addresses = [state.address for state in self._nodes.here() if state.address != but]
        answers: dict[str, Reply] = {}

        async def ask(address: str) -> None:
            answers[address] = await self.to(address, *command)

        async with trio.open_nursery() as nursery:
            for address in addresses:
                nursery.start_soon(ask, address)
        return [(address, answers[address]) for address in addresses]

    async def any(self, *command: Argument) -> Answer:
        """The reply of the first node that can be reached; no other node is tried once a node may
        have run the command. Leaving nodes come last. Nodes of another cluster are not tried."""
        nodes = self._nodes
        states = [state for state in nodes.here() if state.address not in nodes.apart]
        states.sort(key=lambda state: state.leaving)
        answer: Answer = "", ConnectionLost("no node answers")
        for state in states:
            answer = state.address, await self.to(state.address, *command)
            error = answer[1]
            if not isinstance(error, ConnectionLost) or error.maybe_executed:
                break
        return answer

    async def run(self, orders: Sequence[Order]) -> list[tuple[Order, str, Reply]]:
        """Send the commands of orders for one node, or of a single order. Returns the replies, each
        with its order and the address of the node."""
        where = orders[0].where
        if isinstance(where, str):
            if self._nodes.get(where) is None:
                # A form can contain anything, and only nodes may see a password.
                stranger = ConnectionLost(f"{where!r:.80} is not a node of the cluster")
                return [(order, "", stranger) for order in orders]
            replies = await self.many(where, [order.command for order in orders])
            return [(order, where, reply) for order, reply in zip(orders, replies, strict=True)]
        [order] = orders
        if where is Where.ANY:
            answers = [await self.any(*order.command)]
        else:
            answers = await self.every(*order.command, but=order.but)
            answers = answers or [("", ConnectionLost("no node answers"))]
        return [(order, *answer) for answer in answers]

    def close(self) -> None:
        """Close all connections permanently."""
        self._closed = True
        for connection in (*self._connections.values(), *self._own):
            connection.close()
        self._connections.clear()

    async def _connection(self, address: str) -> Connection:
        """The connection to a node; made now if necessary. Raises DisqueError: there is none."""
        asked = trio.current_time()
        async with self._opening.setdefault(address, trio.Lock()):
            connection = self._connections.get(address)
            if connection is None or connection.closed:
                connection = self._connections[address] = await self._open(address, asked)
            return connection

    async def _execute_apart(
        self, address: str, commands: Sequence[Sequence[Argument]], limit: float
    ) -> list[Reply]:
        """The replies to commands that wait for other nodes. Several of them are sent as a group,
        in which they all wait at once; if the user may not send groups, one by one. ``limit``: s
        for an answer.

        Raises:
            DisqueError: there is no connection.
        """
        connection = await self._open(address, trio.current_time())
        self._own.add(connection)

        async def ask(*few: Sequence[Argument]) -> list[Reply]:
            with trio.move_on_after(limit):
                return await connection.execute_many(few)
            connection.close()
            return [_too_late(address, limit) for _ in few]

        try:
            if len(commands) == 1:
                return await ask(*commands)
            [begun] = await ask(("MULTI",))
            if isinstance(begun, DisqueError):
                return [reply for command in commands for reply in await ask(command)]
            *queued, done = await ask(*commands, ("EXEC",))
        finally:
            self._own.remove(connection)
            connection.close()
        if isinstance(done, list):
            return done
        taken = [not isinstance(reply, DisqueError) for reply in queued]
        if isinstance(done, ConnectionLost) or all(taken):
            return [done for _ in commands]
        # Nothing was done, because some may not be sent. The others may.
        others = iter(await self.many(address, list(compress(commands, taken))))
        return [next(others) if took else reply for reply, took in zip(queued, taken, strict=True)]

    async def _open(self, address: str, asked: float) -> Connection:
        """A new connection, for somebody who has been waiting since ``asked``.

        An attempt that failed is repeated after as long as it took, at the earliest: a page, and
        all who wait meanwhile, wait for a hung node once.

        Raises:
            DisqueError: there is none.
        """
        until, why = self._failures.get(address, (asked, ""))
        if until > asked:
            raise ConnectionLost(why)
        began = trio.current_time()
        try:
            return await self._try_to_open(address)
        except ConnectionLost as error:
            now = trio.current_time()
            self._failures[address] = now + (now - began), str(error)
            raise

    async def _try_to_open(self, address: str) -> Connection:
        """A new connection. Raises DisqueError."""
        if not self._closed:
            try:
                connection = await self._connector.open(parse_told(address))
            except ConnectionLost as error:
                raise ConnectionLost(f"{address}: {error}") from error
            if not self._closed:
                return connection
            connection.close()
        raise ConnectionLost(f"{address}: the session is over")


def _too_late(address: str, limit: float) -> ConnectionLost:
    return ConnectionLost(f"{address}: no answer within {limit:g} s", maybe_executed=True)
