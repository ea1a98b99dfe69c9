"""``disque move``: moves queued jobs to another queue."""

from typing import Final

from disque_trio.cli.subcommands.moving import add_options, in_batches
from disque_trio.cli.subcommands.subcommand import Call, Subcommand
from disque_trio.overview.names import to_bytes
from disque_trio.process.options import Parser


def _describe(parser: Parser) -> None:
    parser.add_argument("source", metavar="FROM", help="the queue that has the jobs")
    parser.add_argument("target", metavar="TO", help="the queue that gets them")
    add_options(parser)


async def _run(call: Call) -> int:
    source, target = call.arguments.source, call.arguments.target
    return await in_batches(call, ("QMOVE", to_bytes(source), to_bytes(target)), source, "moved")


SUBCOMMAND: Final = Subcommand(_describe, _run)
