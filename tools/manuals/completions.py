"""Completions for bash, zsh and fish: options, choices, subcommands, and otherwise file names.

shtab makes them from parsers like those of the commands, three of which have none of argparse.
"""

from argparse import ArgumentParser
from typing import Final

import shtab

from tools.manuals.described import Command, Option

SHELLS: Final = {
    "bash": "bash-completion/completions/{}",
    "zsh": "zsh/vendor-completions/_{}",
    "fish": "fish/vendor_completions.d/{}.fish",
}
"""The files, below ``share``, in which each shell looks for the completion of a command."""

# The names of values that are files or directories.
_FILES = {"FILE", "DIR", "PATH", "OUT", "OUTPUT", "HTML", "JSON", "PAGE", "ARCHIVE", "AOF", "AUDIT"}
_FILES |= {"file", "dir", "socket"}


def completion(command: Command, shell: str) -> str:
    """The completion of a command for one of SHELLS."""
    parser = ArgumentParser(command.name, add_help=False)
    _fill(parser, command)
    return shtab.complete(parser, shell) + "\n"


def _fill(parser: ArgumentParser, command: Command) -> None:
    for option in command.options:
        help = _help(option)
        if not option.value:
            parser.add_argument(*option.names, help=help, action="store_true")
            continue
        choices = option.choices or None
        action = parser.add_argument(*option.names, help=help, choices=choices)
        if option.value in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    words = [operand for operand in command.operands if operand.choices]
    for operand in words:
        parser.add_argument("word", choices=operand.choices)
    if command.commands and not words:
        below = parser.add_subparsers(dest="command")
        for one in command.commands:
            word = one.name.rpartition(" ")[2]
            _fill(below.add_parser(word, help=_safe(one.about), add_help=False), one)
    else:
        # The words after an operand that is a choice are its own.
        rest = parser.add_argument("rest", nargs="*")
        if not words:
            rest.complete = shtab.FILE  # type: ignore[attr-defined]


def _help(option: Option) -> str:
    """The first sentence of a help text."""
    return _safe(option.help.partition(". ")[0].partition("; ")[0].rstrip("."))


def _safe(text: str) -> str:
    """A help text for argparse, in which % begins a field."""
    return text.replace("%", "%%")
