"""Prints ``help`` in the prompt."""

from collections.abc import Sequence

from disque_trio.cli.commandtable import CommandDoc, CommandTable

_GENERAL = """\
To get help about Disque commands type:
      "help @<group>" to get a list of commands in <group>
      "help <command>" for help on <command>
      "help <tab>" to get a list of possible help topics
      "clear" to clear the screen, "quit" to exit
      "<number> <command>" to run a command that many times
"""


def help_text(table: CommandTable, topics: Sequence[str]) -> str:
    """The answer to ``help`` followed by these words."""
    if not topics:
        groups = sorted({doc.group for doc in table.values() if doc.group})
        listed = "".join(f"      help @{group}\n" for group in groups)
        return _GENERAL + (f"Groups:\n{listed}" if listed else "")
    topic = " ".join(topics).lower()
    if topic.startswith("@"):
        found = [doc for doc in table.values() if doc.group == topic[1:]]
    else:
        found = [table[topic]] if topic in table else []
    if not found:
        return f'No help for "{" ".join(topics)}". Type "help" for the topics.\n'
    return "\n" + "\n".join(_entry(doc) for doc in found) + "\n"


def _entry(doc: CommandDoc) -> str:
    lines = [f"  {doc.name.upper()} {doc.syntax}".rstrip()]
    if doc.summary:
        lines.append(f"  summary: {doc.summary}")
    if doc.group:
        lines.append(f"  group: {doc.group}")
    return "\n".join(lines) + "\n"
