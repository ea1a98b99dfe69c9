"""``disque cluster leave``: has a node give everything away, and the others forget it."""

from typing import Final

import trio

from disque_trio.cli.subcommands.reach import Member, Reached, reach
from disque_trio.cli.subcommands.subcommand import Call, Failure, Subcommand
from disque_trio.client.nodes import parse_address, parse_hello
from disque_trio.humanize import duration
from disque_trio.humanize import jobs as of_jobs
from disque_trio.process.options import Parser, period
from disque_trio.respclient.errors import ConnectionLost, DisqueError
from disque_trio.respclient.values import integer

EACH: Final = 0.2  # s between two looks
MISSING: Final = "ERR Unknown node"  # it has been forgotten already


def _describe(parser: Parser) -> None:
    add = parser.add_argument
    add("node", nargs="?", metavar="HOST:PORT", help="which node, or its id (default: -h and -p)")
    add(
        "--wait",
        type=period(0.1),
        metavar="TIME",
        help="how long to wait (default: until it is done)",
    )
    add("--or-stay", action="store_true", help="the node stays after all if that is too short")
    add("--stop", action="store_true", help="stop the node (SHUTDOWN)")
    parser.epilog = "Its jobs are at the other nodes then; what it keeps in files can be deleted."


async def _run(call: Call) -> int:
    async with reach(call) as reached:
        member = _chosen(call, reached)
        if reached.members == [member]:
            raise Failure("there is no other node to take the jobs")
        await _empty(call, member)
        # Some that were there before may have left meanwhile, too.
        known = parse_hello(await member.ask("HELLO"), parse_address(member.address)).nodes
        ids = {node.id for node in known} - {member.id}
        addresses = {str(node.address) for node in known}
        reached.missing = [one for one in reached.missing if one[0] in addresses]
        status = reached.complain(call)
        if call.arguments.stop:
            # First: nodes that have forgotten it would not take what its clients still add.
            await _stop(member)
        for other in [one for one in reached.members if one.id in ids]:
            try:
                await other.ask("CLUSTER", "FORGET", member.id)
            except DisqueError as error:
                if not str(error).startswith(MISSING):
                    call.printer.complain(f"{other.address} has not forgotten it: {error}")
                    status = 1
    end = "has left, and is stopped" if call.arguments.stop else "has left: stop it now"
    fields = {"node": member.address, "id": member.id, "stopped": bool(call.arguments.stop)}
    call.printer.result(fields, f"{member.address} {end}", f"{member.address} {end}")
    return status


def _chosen(call: Call, reached: Reached) -> Member:
    """The node that is to leave. Raises ``Failure``: it is not there."""
    wanted = call.arguments.node
    if wanted is None:
        return reached.first
    found = [one for one in reached.members if wanted in (one.address, one.id)]
    if len(found) != 1:
        known = ", ".join(one.address for one in reached.members)
        raise Failure(f"{wanted} is none of the nodes that can be reached: {known}")
    return found[0]


async def _empty(call: Call, member: Member) -> None:
    """Have ``member`` leave, and wait until others have all that it has. Raises ``Failure``."""
    arguments = call.arguments
    left: int | None = None
    try:
        await member.ask("CLUSTER", "LEAVING", "yes")
        left = integer(await member.ask("CLUSTER", "HANDOVER"))
        progress = call.printer.progress("handed over", left)
        most = left
        with trio.move_on_after(float("inf") if arguments.wait is None else arguments.wait):
            while left:
                await trio.sleep(EACH)
                left = integer(await member.ask("CLUSTER", "HANDOVER"))
                progress.add(most - left - progress.done)
    except DisqueError as error:
        raise Failure(f"{member.address}: {error}") from error
    if not left:
        return
    then = "it goes on leaving, and the same command waits for it"
    if arguments.or_stay:
        await member.ask("CLUSTER", "LEAVING", "no")
        then = "it stays"
    after = duration(arguments.wait)
    raise Failure(
        f"{member.address} still has {of_jobs(left)} after {after} that the others lack; {then}"
    )


async def _stop(member: Member) -> None:
    try:
        await member.ask("SHUTDOWN")
    except ConnectionLost:
        pass  # it is gone
    except DisqueError as error:
        raise Failure(f"{member.address}: {error}") from error


SUBCOMMAND: Final = Subcommand(_describe, _run)
