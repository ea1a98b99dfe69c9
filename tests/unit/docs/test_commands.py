"""docs/commands.md agrees with the command table."""

import re

from disque_trio.node.commands.table import build_table
from disque_trio.policy_options import OPTIONS
from tests.support import ROOT

PAGE = ROOT / "docs" / "commands.md"


def test_the_page_has_every_command_with_the_arguments_of_the_table() -> None:
    told = dict(re.findall(r"^### (\w+)\n\n    (.*)$", PAGE.read_text(), re.MULTILINE))
    table = {
        command.name.upper(): f"{command.name.upper()} {command.syntax}".rstrip()
        for command in build_table().values()
    }
    assert told == table


def test_the_page_explains_each_option_of_a_policy() -> None:
    section = PAGE.read_text().partition("\n### QSET\n")[2].partition("\n### ")[0]
    explained = re.findall(
        r"`([A-Z]+)`", "\n".join(re.findall(r"^- (.*?):", section, re.MULTILINE))
    )
    explained += re.findall(r" `([A-Z]+)`:", section)  # in the item of another one
    assert set(explained) == {option.word for option in OPTIONS}
