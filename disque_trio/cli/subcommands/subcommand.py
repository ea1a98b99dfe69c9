"""What a subcommand is: how it describes its options, and what it gets to do its work."""

from argparse import Namespace
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from disque_trio.cli.options import Options
from disque_trio.cli.subcommands.printing import Printer
from disque_trio.process.options import Parser


class Failure(Exception):
    """What was wanted is impossible; the text is for the user."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a subcommand.

    Attributes:
        options: those before its name: which node, how to log in.
        arguments: those after it, by the names of the parser.
        printer: where rows, progress and complaints go.
    """

    options: Options
    arguments: Namespace
    printer: Printer


@dataclass(frozen=True, slots=True)
class Subcommand:
    """A subcommand.

    Attributes:
        describe: adds operands and options to its parser, which already has ``--json`` and
            ``--help``. It may set ``parser.epilog``.
        run: does the work, in a Trio task, and returns the exit status: 0, or 1 if anything was
            left out or refused. Raises ``Failure`` or ``DisqueError``.
    """

    describe: Callable[[Parser], None]
    run: Callable[[Call], Awaitable[int]]
