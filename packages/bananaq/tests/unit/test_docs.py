"""packages/bananaq/docs/bananaq.md describes the same commands as the command table."""

from __future__ import annotations

import re

from disque_bananaq.commands.table import build_table
from tests.support import ROOT

PAGE = ROOT / "packages" / "bananaq" / "docs" / "bananaq.md"


def test_the_page_has_every_command_with_the_arguments_of_the_table() -> None:
    told = dict(re.findall(r"^### (Q\w+)\n\n    (.*)$", PAGE.read_text(), re.MULTILINE))
    table = {
        command.name.upper(): f"{command.name.upper()} {command.syntax}".rstrip()
        for command in build_table().values()
        if command.group in ("events", "okq")
    }
    assert told == table


def test_the_page_names_the_other_commands() -> None:
    text = PAGE.read_text()
    for command in build_table().values():
        if command.group not in ("events", "okq", "connection"):
            assert re.search(rf"\b{command.name.upper()}\b", text), command.name
