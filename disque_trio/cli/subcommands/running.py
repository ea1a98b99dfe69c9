"""Runs a subcommand: reads its options, calls it, reports in one line what it raises."""

import importlib
import sys
from collections.abc import Sequence
from typing import NoReturn

import trio

from disque_trio.cli.format import Output
from disque_trio.cli.options import Options
from disque_trio.cli.runner import complain
from disque_trio.cli.subcommands.printing import Printer
from disque_trio.cli.subcommands.subcommand import Call, Failure, Subcommand
from disque_trio.cli.subcommands.table import Listing
from disque_trio.process.options import Parser
from disque_trio.respclient.errors import DisqueError, first_of


class _Parser(Parser):
    wrong = 1  # the exit status after wrong arguments

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        super().exit(self.wrong if status else 0, message)


def load(entry: Listing) -> Subcommand:
    """The subcommand of a line of the table."""
    module = importlib.import_module(f"{__package__}.{entry.module}")
    found = module.SUBCOMMAND
    assert isinstance(found, Subcommand), found
    return found


def parser_of(entry: Listing) -> Parser:
    """The parser of a subcommand's operands and options."""
    parser = _Parser(
        f"disque {entry.name}",
        description=f"{entry.about} The options that name a node come before:"
        f" disque -p 7712 {entry.name}.",
        allow_abbrev=False,
    )
    parser.wrong = entry.wrong
    parser.add_argument("--json", action="store_true", help="print JSON, one object on each line")
    load(entry).describe(parser)
    return parser


def run_subcommand(entry: Listing, words: Sequence[str], options: Options) -> int:
    """Run a subcommand with the words after its name. Returns the exit status."""
    if options.output in (Output.CSV, Output.RAW, Output.STANDARD):
        complain(f"disque: {entry.name} prints a table, or JSON with --json")
        return entry.wrong
    try:
        arguments = parser_of(entry).parse_args(words)
    except SystemExit as ended:  # after --help or a mistake
        return int(ended.code or 0)
    json = arguments.json or options.output is Output.JSON
    printer = Printer(entry.name.replace(" ", "-"), sys.stdout, sys.stderr, json=json)
    try:
        return trio.run(load(entry).run, Call(options, arguments, printer))
    except (Failure, DisqueError, KeyboardInterrupt, BaseExceptionGroup) as error:
        first = first_of(error)
        if isinstance(first, KeyboardInterrupt):
            printer.stopped()
        if not isinstance(first, Failure | DisqueError):
            raise first from None  # such as a BrokenPipeError, which main knows
        printer.complain(str(first))
        return 1
    finally:
        printer.end()
