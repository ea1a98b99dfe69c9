"""Connections to all nodes of a cluster, for a subcommand that asks or tells each of them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import trio

from disque_trio.cli.cluster import PATIENCE, cluster_of
from disque_trio.cli.subcommands.subcommand import Call, Failure
from disque_trio.client.nodes import Hello, Node, parse_address, parse_hello
from disque_trio.notation.addresses import Address
from disque_trio.resp.command import Argument
from disque_trio.respclient.connection import Connection, Connector, Reply
from disque_trio.respclient.errors import ConnectionLost, DisqueError

SILENCE: Final = 60.0  # s to wait for a reply


@dataclass(frozen=True, slots=True)
class Member:
    """A node that can be reached. id: of 40 characters."""

    id: str
    address: str
    connection: Connection

    async def ask(self, *command: Argument, within: float = SILENCE) -> Reply:
        """Send a command and wait for its reply. Raises DisqueError."""
        [reply] = await self.ask_all([command], within)
        if isinstance(reply, DisqueError):
            raise reply
        return reply

    async def ask_all(
        self, commands: Sequence[Sequence[Argument]], within: float = SILENCE
    ) -> list[Reply]:
        """Send commands together. Error replies are among the replies. Raises ConnectionLost, also
        if they are not there within as many seconds."""
        with trio.move_on_after(within):
            replies = await self.connection.execute_many(commands)
            for reply in replies:
                if isinstance(reply, ConnectionLost):
                    raise reply
            return replies
        raise ConnectionLost(f"{self.address}: no reply within {within:g} s")


@dataclass(slots=True)
class Reached:
    """The nodes of a cluster.

    Attributes:
        first: the one that told of the others.
        members: those that can be reached, by address.
        missing: the addresses of the others, and why.
    """

    first: Member
    members: list[Member]
    missing: list[tuple[str, str]] = field(default_factory=list)

    def complain(self, call: Call) -> int:
        """Tell the user which nodes are missing. Returns the exit status: 1 if any is."""
        for address, why in self.missing:
            call.printer.complain(f"{address} is left out: {why}")
        return 1 if self.missing else 0


@asynccontextmanager
async def reach(call: Call) -> AsyncIterator[Reached]:
    """Connect to all nodes that the first one knows that answers.

    Raises:
        Failure: none answers.
    """
    cluster = cluster_of(call.options, f"disque-{call.printer.name}")
    async with trio.open_nursery() as nursery:
        try:
            connector = Connector(nursery, cluster.login, PATIENCE)
        except ValueError as error:  # a certificate file is invalid
            raise Failure(str(error)) from error
        seeds = [parse_address(node) for node in cluster.nodes]
        reached, hello = await _first(connector, seeds)
        async with trio.open_nursery() as joining:
            for node in hello.nodes:
                if node.id != hello.node_id:
                    joining.start_soon(_join, connector, node, reached)
        reached.members.sort(key=lambda member: member.address)
        reached.missing.sort()
        yield reached
        for member in reached.members:
            member.connection.close()
        nursery.cancel_scope.cancel()


async def _first(connector: Connector, seeds: Sequence[Address]) -> tuple[Reached, Hello]:
    """The first of the seeds that answers."""
    problem = ""
    first: DisqueError | None = None
    for seed in seeds:
        try:
            connection = await connector.open(seed)
            hello = await _greet(connection)
        except DisqueError as error:
            problem = problem or f"Could not connect to Disque at {seed}: {error}"
            first = first or error
            continue
        member = Member(hello.node_id, str(seed), connection)
        return Reached(member, [member]), hello
    raise Failure(problem) from first


async def _join(connector: Connector, node: Node, reached: Reached) -> None:
    address = str(node.address)
    try:
        connection = await connector.open(node.address)
        told = await _greet(connection)
        if told.node_id != node.id:
            raise ConnectionLost("another node answers there")
    except DisqueError as error:
        reached.missing.append((address, str(error)))
    else:
        reached.members.append(Member(node.id, address, connection))


async def _greet(connection: Connection) -> Hello:
    with trio.move_on_after(PATIENCE):
        return parse_hello(await connection.execute("HELLO"), connection.address)
    raise ConnectionLost("no answer")
