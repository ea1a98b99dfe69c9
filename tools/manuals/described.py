"""Describes the arguments of each command, for man pages and completions.

Most commands have an argparse parser, which is found with ``--help``. ``disque-server`` and
``bananaq`` have a table of settings; ``disque`` has its options in its usage text.
"""

import argparse
import importlib
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from unittest.mock import patch

from disque_bananaq import settings as bananaq
from disque_bananaq.option_texts import usage as bananaq_usage
from disque_trio.cli.commandtable import built_in_table
from disque_trio.cli.options import usage as disque_usage
from disque_trio.cli.subcommands.running import parser_of as subcommand_parser
from disque_trio.cli.subcommands.table import TABLE as TABLE_OF_DISQUE
from disque_trio.config import SECTIONS, TABLE, Param
from disque_trio.config.types import Choice, YesNo
from disque_trio.node.texts import USAGE as SERVER
from tools.workspace import distributions


@dataclass(frozen=True)
class Option:
    """An option, or an operand without ``names``. ``value``: the name of its value, empty if it
    takes none. ``choices``: the possible values, empty for any."""

    names: tuple[str, ...]
    value: str = ""
    help: str = ""
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Group:
    """Options under a heading."""

    title: str
    options: tuple[Option, ...]
    intro: str = ""


@dataclass(frozen=True)
class Command:
    """A command or a subcommand. ``text``: a longer description, with its line breaks."""

    name: str
    about: str
    synopsis: tuple[str, ...]
    groups: tuple[Group, ...]
    operands: tuple[Option, ...] = ()
    commands: tuple["Command", ...] = ()
    text: str = ""

    @property
    def options(self) -> list[Option]:
        return [option for group in self.groups for option in group.options]


def commands() -> Iterator[Command]:
    """All installed commands."""
    own = {"disque": _disque, "disque-server": _server, "bananaq": _bananaq}
    for house in distributions():
        for name, entry in house.scripts.items():
            yield own[name]() if name in own else _of_parser(name, parser_of(name, entry))


class _Asked(BaseException):
    def __init__(self, parser: argparse.ArgumentParser) -> None:
        super().__init__()
        self.parser = parser


def parser_of(name: str, entry: str) -> argparse.ArgumentParser:
    """The parser of a command, caught when its entry point prints the help."""
    module, _, function = entry.partition(":")

    def asked(parser: argparse.ArgumentParser, file: object = None) -> None:
        raise _Asked(parser)

    with (
        patch.object(argparse.ArgumentParser, "print_help", asked),
        patch.object(sys, "argv", [name, "--help"]),
    ):
        try:
            getattr(importlib.import_module(module), function)()
        except _Asked as caught:
            return caught.parser
    raise ValueError(f"{name} has no argparse parser")


def _of_parser(name: str, parser: argparse.ArgumentParser, about: str = "") -> Command:
    below: list[Command] = []
    operands: list[Option] = []
    groups = []
    for group in parser._action_groups:
        options: list[Option] = []
        for action in group._group_actions:
            if isinstance(action, argparse._SubParsersAction):
                said = {choice.dest: choice.help or "" for choice in action._choices_actions}
                below += [
                    _of_parser(f"{name} {word}", parser, said.get(word, ""))
                    for word, parser in action.choices.items()
                ]
            elif action.help != argparse.SUPPRESS:
                (options if action.option_strings else operands).append(_of_action(parser, action))
        if options:
            groups.append(Group(group.title or "Options", tuple(options), group.description or ""))
    usage = " ".join(parser.format_usage().split()).removeprefix("usage: ")
    return Command(
        name,
        _first_sentence(about or parser.description or ""),
        (usage,),
        tuple(groups),
        tuple(operands),
        tuple(below),
        "\n".join(filter(None, (_rest(parser.description or ""), parser.epilog))),
    )


def _of_action(parser: argparse.ArgumentParser, action: argparse.Action) -> Option:
    formatter = parser._get_formatter()
    text = formatter._expand_help(action) if action.help else ""
    value = ""
    if action.nargs != 0:
        names = action.metavar or (action.dest.upper() if action.option_strings else action.dest)
        value = names if isinstance(names, str) else " ".join(names)
        if action.choices and not action.metavar:
            value = "|".join(map(str, action.choices))
    choices = tuple(map(str, action.choices or ()))
    return Option(tuple(action.option_strings), value, " ".join(text.split()), choices)


def _first_sentence(text: str) -> str:
    return " ".join(text.split()).partition(". ")[0].rstrip(".")


def _rest(text: str) -> str:
    head, _, rest = text.partition("\n\n")
    return rest if "." not in head.strip().rstrip(".") else text


def _of_settings(sections: Mapping[str, str], table: Mapping[str, Param]) -> Iterator[Group]:
    for section, intro in sections.items():
        options = [_of_setting(param) for param in table.values() if param.section == section]
        yield Group(section, tuple(options), intro.replace("`", ""))


def _of_setting(param: Param) -> Option:
    unit = f", {param.unit}" if param.unit and param.unit not in param.type.expected else ""
    text = f"{param.help} Value: {param.type.expected}{unit}; default: {param.default or 'empty'}."
    choices: tuple[str, ...] = ()
    if isinstance(param.type, YesNo):
        choices = ("yes", "no")
    elif isinstance(param.type, Choice):
        choices = param.type.choices
    value = "PATH" if re.search("path|file name|directory", param.type.expected) else "VALUE"
    return Option((f"--{param.name}",), value, text.replace("`", ""), choices)


def _of_usage(usage: str) -> tuple[tuple[str, ...], str]:
    """The synopsis of a usage text, and the rest."""
    head, _, rest = usage.partition("\n\n")
    lines = head.removeprefix("Usage:").splitlines()
    return tuple(line.strip() for line in lines), rest


def _server() -> Command:
    synopsis, text = _of_usage(SERVER)
    options = (
        Option(
            ("--check-config",),
            "FILE",
            "Report everything that is wrong with a file; do not start a node.",
        ),
        Option(("--install-hints",), "", "Show how to install the node as a systemd service."),
        Option(("-v", "--version"), "", "Print the version."),
        Option(("-h", "--help"), "", "Print the usage."),
    )
    groups = (Group("options", options), *_of_settings(SECTIONS, TABLE))
    operand = Option((), "FILE", "Configuration file; - is the standard input.")
    return Command(
        "disque-server", "Start a Disque node", synopsis, groups, (operand,), (), _rest(text)
    )


def _bananaq() -> Command:
    synopsis, text = _of_usage(bananaq_usage().partition("\nNetwork. ")[0])
    text, _, options = text.partition("\n  --config")
    found = re.findall(r"^  (-\S.*)\n      (.*)", "  --config" + options, re.MULTILINE)
    groups = (
        Group("options", tuple(_of_line(names, help) for names, help in found)),
        *_of_settings(bananaq.SECTIONS, bananaq.TABLE),
    )
    about, _, text = text.partition("\n\n")
    return Command("bananaq", about.rstrip("."), synopsis, groups, text=text)


def _of_line(names: str, help: str) -> Option:
    words = names.replace(",", " ").split()
    options = tuple(word for word in words if word.startswith("-"))
    return Option(options, " ".join(words[len(options) :]).strip("<>"), help)


def _disque() -> Command:
    head, _, text = disque_usage().partition("\n\n")
    first, _, lines = head.partition("\n")
    found: list[tuple[str, list[str]]] = []
    for line in lines.splitlines():
        spec, help = line[2:20].strip(), line[21:].strip()
        if line.startswith("  -") and line[19:21].strip():  # too long for its column
            spec, help = line.strip(), ""
        if line.startswith("  -"):
            found.append((spec, []))
        found[-1][1].append(help)
    options = tuple(_of_line(spec, " ".join(help).strip()) for spec, help in found)
    first_words = [entry.name.split()[0] for entry in TABLE_OF_DISQUE]
    choices = tuple(sorted({*built_in_table(), *first_words}))
    words = Option((), "cmd", "A subcommand, or a command of the node.", choices)
    below = [
        _of_parser(f"disque {entry.name}", subcommand_parser(entry), entry.about)
        for entry in TABLE_OF_DISQUE
    ]
    return Command(
        "disque",
        "Talk to a Disque node",
        (first.removeprefix("Usage: "),),
        (Group("options", options),),
        (words,),
        tuple(below),
        text,
    )
