"""``disque leave``: empties a node that is to leave the cluster, and takes it out."""

from typing import Final

import trio

from disque_trio import humanize
from disque_trio.cli.subcommands.reach import Member, Reached, reach
from disque_trio.cli.subcommands.short_of_copies import counts, make
from disque_trio.cli.subcommands.subcommand import Call, Failure, Subcommand
from disque_trio.client.nodes import LEAVING_PRIORITY, parse_hello
from disque_trio.process.options import Parser, period
from disque_trio.respclient.errors import ConnectionLost, DisqueError

WAIT: Final = 3_600.0  # s, by default
AGAIN: Final = 1.0  # s between two looks at jobs that have to be taken
SOON: Final = 0.1  # s between two looks at what others know of the node
KNOWN_IN: Final = 30.0  # s until all others have to know that it is leaving


def _describe(parser: Parser) -> None:
    add = parser.add_argument
    add("node", metavar="NODE", help="its HOST:PORT, as disque nodes shows it, or its id")
    add("--stop", action="store_true", help="then stop it, and have all others forget it")
    add("--undo", action="store_true", help="let it stay after all")
    add(
        "--wait",
        type=period(0.1),
        default=WAIT,
        metavar="TIME",
        help="how long to wait until no job needs it (default: 1h)",
    )
    parser.epilog = "The exit status is 0 once the node is no longer needed."


async def _run(call: Call) -> int:
    wanted = call.arguments
    async with reach(call) as reached:
        leaver = _find(reached, wanted.node)
        if wanted.undo:
            await leaver.ask("CLUSTER", "LEAVING", "no")
            call.printer.result({"node": leaver.address, "leaving": False}, "It stays.", "stays")
            return 0
        if reached.missing:
            address, why = reached.missing[0]
            raise Failure(f"{address} cannot be reached, and may need this node's jobs: {why}")
        others = [member for member in reached.members if member is not leaver]
        if not others:
            raise Failure(f"{leaver.address} is the only node: its jobs can go nowhere")
        await leaver.ask("CLUSTER", "LEAVING", "yes")
        await _until_known(leaver, others)
        with trio.move_on_after(wanted.wait) as scope:
            await _empty(call, reached, leaver)
        if scope.cancelled_caught:
            raise Failure(
                f"jobs still need {leaver.address}, which stays a leaving node (--undo ends that);"
                " the same command goes on"
            )
        if wanted.stop:
            await _take_out(leaver, others)
    done = "has left the cluster" if wanted.stop else "is not needed any more: stop it"
    fields = {"node": leaver.address, "id": leaver.id, "leaving": True, "stopped": wanted.stop}
    call.printer.result(fields, f"{leaver.address} {done}.", f"{leaver.address} {done}")
    return 0


def _find(reached: Reached, name: str) -> Member:
    """The node with this address or id. Raises Failure."""
    for member in reached.members:
        if name in (member.address, member.id):
            return member
    raise Failure(f"no such node can be reached: {name}")


async def _until_known(leaver: Member, others: list[Member]) -> None:
    """Wait until all other nodes know that the node is leaving. Raises Failure."""
    with trio.move_on_after(KNOWN_IN):
        for member in others:
            while not await _is_leaving(leaver, member):  # noqa: ASYNC110 - it has to be asked
                await trio.sleep(SOON)
        return
    raise Failure(f"not all nodes have heard that {leaver.address} is leaving")


async def _is_leaving(leaver: Member, member: Member) -> bool:
    hello = parse_hello(await member.ask("HELLO"), member.connection.address)
    return any(node.id == leaver.id and node.priority >= LEAVING_PRIORITY for node in hello.nodes)


async def _empty(call: Call, reached: Reached, leaver: Member) -> None:
    """Return once every job of the node has its copies on others. Raises Failure."""
    told = -1
    while True:
        left = sum((await counts(reached.members, [])).values())
        if not left:
            return
        progress = call.printer.progress("copied", left)
        try:
            done = await make(reached.members, [], AGAIN, progress)
        except* DisqueError as group:
            why = group.exceptions[0]
            raise Failure(f"{why} (the same command goes on)") from None
        if done:
            continue
        left = sum((await counts(reached.members, [])).values())
        if left and left != told:
            told = left
            call.printer.tell(
                f"{humanize.jobs(left)} cannot be copied: delivered at most once, they have to be"
                " taken, or there are too few nodes"
            )
        await trio.sleep(AGAIN)


async def _take_out(leaver: Member, others: list[Member]) -> None:
    """Stop the node, and have all others forget it. Raises DisqueError."""
    try:
        await leaver.ask("SHUTDOWN")
    except ConnectionLost:
        pass  # it ends without an answer
    for member in others:
        await member.ask("CLUSTER", "FORGET", leaver.id)


SUBCOMMAND: Final = Subcommand(_describe, _run)
