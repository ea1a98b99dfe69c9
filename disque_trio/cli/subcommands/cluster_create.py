"""``disque cluster create``: makes nodes meet, and waits until all see each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import trio

from disque_trio.cli.cluster import PATIENCE, cluster_of
from disque_trio.cli.subcommands.reach import Member
from disque_trio.cli.subcommands.subcommand import Call, Failure, Subcommand
from disque_trio.client import replies
from disque_trio.client.nodes import LEAVING_PRIORITY, Hello, parse_address, parse_hello
from disque_trio.notation.addresses import Address
from disque_trio.overview.groups import siblings
from disque_trio.process.options import Parser, period
from disque_trio.respclient.connection import Connector
from disque_trio.respclient.errors import DisqueError

WAIT: Final = 30.0  # s until all nodes have to see each other, by default
AGAIN: Final = 0.1  # s between two looks


@dataclass(frozen=True, slots=True)
class Founder:
    """A node that is to be in the cluster. own: the ids of the processes of its server."""

    member: Member
    address: Address
    own: frozenset[str]

    async def hello(self) -> Hello:
        """What it knows of the others. Raises DisqueError."""
        return parse_hello(await self.member.ask("HELLO"), self.address)


def unseen(hello: Hello, ids: Sequence[str]) -> list[str]:
    """Those of ``ids`` that a node does not know, or does not see alive."""
    alive = {node.id for node in hello.nodes if node.priority < LEAVING_PRIORITY}
    return [id for id in ids if id not in alive]


def _describe(parser: Parser) -> None:
    add = parser.add_argument
    add("node", nargs="+", metavar="HOST:PORT", help="all nodes of the new cluster")
    add("--join", action="store_true", help="some of them may be in a cluster: the others join it")
    add(
        "--wait",
        type=period(0.1),
        default=WAIT,
        metavar="TIME",
        help=f"how long to wait until all see each other (default: {WAIT:g}s)",
    )


async def _run(call: Call) -> int:
    wanted = call.arguments
    cluster = cluster_of(call.options, "disque-cluster-create")
    try:
        addresses = [parse_address(text) for text in wanted.node]
    except ValueError as error:
        raise Failure(str(error)) from error
    if any(address.path for address in addresses):
        raise Failure("nodes meet at a host and a port, not at a Unix socket")
    async with trio.open_nursery() as nursery:
        connector = Connector(nursery, cluster.login, PATIENCE)
        founders = [await _found(connector, address) for address in addresses]
        await _check(founders, join=wanted.join)
        first, *others = founders
        for other in others:
            await first.member.ask("CLUSTER", "MEET", other.address.host, other.address.port)
        with trio.move_on_after(wanted.wait) as scope:
            while await _missing(founders):  # noqa: ASYNC110 - nodes tell only when they are asked
                await trio.sleep(AGAIN)
        if scope.cancelled_caught:
            raise Failure(f"not all nodes see each other: {'; '.join(await _missing(founders))}")
        nursery.cancel_scope.cancel()
    for founder in founders:
        fields = {"node": founder.member.address, "id": founder.member.id}
        if call.printer.json:
            call.printer.record(fields)
    if not call.printer.json:
        call.printer.line(f"{len(founders)} nodes see each other.")
    return 0


async def _found(connector: Connector, address: Address) -> Founder:
    try:
        connection = await connector.open(address)
        hello = parse_hello(await connection.execute("HELLO"), address)
        info = replies.info(await connection.execute("INFO"))
    except DisqueError as error:
        raise Failure(f"{address}: {error}") from error
    own = {sibling.id for sibling in siblings(info)} | {hello.node_id}
    return Founder(Member(hello.node_id, str(address), connection), address, frozenset(own))


async def _check(founders: Sequence[Founder], *, join: bool) -> None:
    """Raises Failure: a node is named twice, or is in a cluster with others."""
    seen: dict[str, str] = {}
    for founder in founders:
        same = seen.setdefault(founder.member.id, founder.member.address)
        if same != founder.member.address:
            raise Failure(f"{same} and {founder.member.address} are the same node")
    named = frozenset[str]().union(*[founder.own for founder in founders])
    for founder in founders:
        others = [node for node in (await founder.hello()).nodes if node.id not in named]
        if others and not join:
            more = f"{others[0].address} and {len(others) - 1} more" if others[1:] else ""
            raise Failure(
                f"{founder.member.address} is in a cluster with {more or others[0].address};"
                " --join lets the others join it"
            )


async def _missing(founders: Sequence[Founder]) -> list[str]:
    """Who does not see whom."""
    addresses = {founder.member.id: founder.member.address for founder in founders}
    found = []
    for founder in founders:
        lacks = unseen(await founder.hello(), [*addresses])
        if lacks:
            names = ", ".join(addresses[id] for id in lacks)
            found.append(f"{founder.member.address} does not see {names}")
    return found


SUBCOMMAND: Final = Subcommand(_describe, _run)
