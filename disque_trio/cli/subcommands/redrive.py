"""``disque redrive``: sends dead letters back."""

from typing import Final

from disque_trio.cli.subcommands.moving import add_options, in_batches
from disque_trio.cli.subcommands.subcommand import Call, Subcommand
from disque_trio.overview.names import to_bytes
from disque_trio.process.options import Parser
from disque_trio.resp.command import Argument


def _describe(parser: Parser) -> None:
    parser.add_argument("queue", help="the queue of the dead letters")
    parser.add_argument(
        "--to", metavar="QUEUE", help="where to send them (default: where each came from)"
    )
    add_options(parser)


async def _run(call: Call) -> int:
    queue, to = call.arguments.queue, call.arguments.to
    command: list[Argument] = ["REDRIVE", to_bytes(queue)]
    command += ["TO", to_bytes(to)] if to is not None else []
    return await in_batches(call, command, queue, "redriven")


SUBCOMMAND: Final = Subcommand(_describe, _run)
