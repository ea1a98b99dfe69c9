"""What ``disque move`` and ``disque redrive`` share: many requests for a few jobs each, so that one
sees how far it is, and can stop and go on."""

from collections.abc import Sequence
from typing import Final

from disque_trio.cli.subcommands.reach import Reached, reach
from disque_trio.cli.subcommands.subcommand import Call, Failure
from disque_trio.overview.names import shown, to_bytes
from disque_trio.process.options import Parser, count
from disque_trio.resp.command import Argument
from disque_trio.respclient.errors import DisqueError
from disque_trio.respclient.values import integer

BATCH: Final = 2_000
"""Jobs for one request: a node moves some 15,000 in a second."""


def add_options(parser: Parser) -> None:
    """Add what both have in common."""
    parser.add_argument("--count", type=count, metavar="N", help="at most (default: all there are)")
    parser.add_argument(
        "--batch", type=count, default=BATCH, metavar="N", help=f"per request (default: {BATCH})"
    )


async def in_batches(call: Call, command: Sequence[Argument], queue: str, what: str) -> int:
    """Send ``command`` with a COUNT until it has done so with as many jobs as are queued in
    ``queue`` now, or as ``--count`` says, or there are none. ``what`` is done to them. Returns the
    exit status."""
    done = 0
    async with reach(call) as reached:
        status = reached.complain(call)
        there = await _length(reached, queue)
        total = there if call.arguments.count is None else min(there, call.arguments.count)
        progress = call.printer.progress(what, total)
        member = reached.members[0]
        while done < total:
            some = min(call.arguments.batch, total - done)
            try:
                moved = integer(await member.ask(*command, "COUNT", some))
            except DisqueError as error:
                raise Failure(
                    f"{member.address}: {error} ({what}: {done:,} of {total:,};"
                    " the same command goes on with the rest)"
                ) from error
            if not moved:
                break
            done += moved
            progress.add(moved)
    fields = {"queue": queue, what: done, "of": total}
    call.printer.result(fields, f"{what} {done:,} of {total:,} jobs of {shown(queue)}", str(done))
    return status


async def _length(reached: Reached, queue: str) -> int:
    """How many jobs are queued on all nodes."""
    return sum([integer(await one.ask("QLEN", to_bytes(queue))) for one in reached.members])
