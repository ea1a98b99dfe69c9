"""Commands of visitors: to one node, to one that answers, to all. Errors are values."""

from collections.abc import Sequence
from typing import Final, TypeAlias

import trio

from disque_trio.client.nodes import parse_address
from disque_trio.console.model.action import Order, Where
from disque_trio.console.model.nodes import Nodes
from disque_trio.resp.command import Argument
from disque_trio.respclient.connection import Connection, Connector, Reply
from disque_trio.respclient.errors import ConnectionLost, DisqueError
from disque_trio.respclient.login import Login

LIMIT: Final = 5.0  # s for an answer
LONG_LIMIT: Final = 60.0  # s for those that walk over a queue on all nodes

_LONG: Final = frozenset({"QPURGE", "QMOVE", "REDRIVE"})

Answer: TypeAlias = "tuple[str, Reply]"
"""The address of a node, and what it said; a ``DisqueError`` where it did not."""


class Calls:
    """Sends commands to the nodes, as one user, over a connection to each.

    Args:
        nursery: where connections are served.
        nodes: those that are known.
        login: of the user.
    """

    def __init__(self, nursery: trio.Nursery, nodes: Nodes, login: Login) -> None:
        self._nodes = nodes
        self._connector = Connector(nursery, login, LIMIT)
        self._connections: dict[str, Connection] = {}
        self._opening: dict[str, trio.Lock] = {}

    async def to(self, address: str, *command: Argument) -> Reply:
        """What the node at ``address`` says; an error is returned."""
        [reply] = await self.many(address, [command])
        return reply

    async def many(self, address: str, commands: Sequence[Sequence[Argument]]) -> list[Reply]:
        """What a node says to several commands, sent at once; errors stand in the list."""
        if not commands:
            return []
        long = any(str(command[0]).upper() in _LONG for command in commands)
        limit = LONG_LIMIT if long else LIMIT
        try:
            connection = await self._connection(address)
        except DisqueError as error:
            return [error for _ in commands]
        with trio.move_on_after(limit):
            return await connection.execute_many(commands)
        # What follows would wait behind the answer that does not come.
        connection.close("no answer in time")
        lost = ConnectionLost(f"{address}: no answer within {limit:g} s", maybe_executed=True)
        return [lost for _ in commands]

    async def every(self, *command: Argument, but: str = "") -> list[Answer]:
        """What all nodes that are there say, by address; the node ``but`` is not asked."""
        addresses = [state.address for state in self._nodes.here() if state.address != but]
        answers: dict[str, Reply] = {}

        async def ask(address: str) -> None:
            answers[address] = await self.to(address, *command)

        async with trio.open_nursery() as nursery:
            for address in addresses:
                nursery.start_soon(ask, address)
        return [(address, answers[address]) for address in addresses]

    async def any(self, *command: Argument) -> Answer:
        """What the first node says that can be reached. One that may have run the command is not
        followed by another. Nodes that leave come last."""
        states = sorted(self._nodes.here(), key=lambda state: state.leaving)
        answer: Answer = "", ConnectionLost("no node answers")
        for state in states:
            answer = state.address, await self.to(state.address, *command)
            error = answer[1]
            if not isinstance(error, ConnectionLost) or error.maybe_executed:
                break
        return answer

    async def run(self, order: Order) -> list[Answer]:
        """Do what an action wants."""
        if order.where is Where.EVERY:
            answers = await self.every(*order.command, but=order.but)
            return answers or [("", ConnectionLost("no node answers"))]
        if order.where is Where.ANY:
            return [await self.any(*order.command)]
        assert isinstance(order.where, str)
        if self._nodes.get(order.where) is None:
            # A form can say anything; nobody but nodes gets to see a password.
            return [("", ConnectionLost(f"{order.where!r:.80} is no node of the cluster"))]
        return [(order.where, await self.to(order.where, *order.command))]

    def close(self) -> None:
        """Hang up on all nodes."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    async def _connection(self, address: str) -> Connection:
        """Raises DisqueError."""
        async with self._opening.setdefault(address, trio.Lock()):
            connection = self._connections.get(address)
            if connection is None or connection.closed:
                try:
                    connection = await self._connector.open(parse_address(address))
                except ConnectionLost as error:
                    raise ConnectionLost(f"{address}: {error}") from error
                self._connections[address] = connection
            return connection
