"""The commands known to the prompt: those of the node, or else the built-in table."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from disque_trio.cli.resp import Kind, Reply


@dataclass(frozen=True, slots=True)
class CommandDoc:
    """One command: its name in lower case, its arguments, and what it does."""

    name: str
    syntax: str = ""
    summary: str = ""
    group: str = ""


CommandTable: TypeAlias = "dict[str, CommandDoc]"


def table_from_docs(reply: Reply) -> CommandTable:
    """Read COMMAND DOCS, with maps or flat arrays. An invalid reply gives an empty table."""
    table: CommandTable = {}
    for name, fields in _entries(reply):
        values = {key: _text(value) for key, value in _entries(fields)}
        table[name.lower()] = CommandDoc(
            name.lower(),
            values.get("syntax", ""),
            values.get("summary", ""),
            values.get("group", ""),
        )
    return table


def built_in_table() -> CommandTable:
    """The table of the node installed with this client; empty if there is none."""
    try:
        from disque_trio.node.commands.table import build_table
    except ImportError:
        return {}
    return {
        command.name: CommandDoc(command.name, command.syntax, command.summary, command.group)
        for command in build_table().values()
    }


def _entries(reply: Reply) -> Iterator[tuple[str, Reply]]:
    if reply.kind in (Kind.ARRAY, Kind.MAP):
        for key, value in reply.pairs():
            yield _text(key), value


def _text(reply: Reply) -> str:
    return reply.text.decode(errors="replace")
