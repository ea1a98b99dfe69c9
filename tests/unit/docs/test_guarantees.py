"""docs/guarantees.md says what every command that changes jobs or queues promises."""

import re

import pytest

from disque_trio.node.commands.table import build_table
from tests.support import ROOT

PAGE = (ROOT / "docs" / "guarantees.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("|")]
NAMED = set(re.findall(r"\w+", " ".join(row.split("|")[1] for row in ROWS)))
TABLE = build_table()


def test_every_command_that_changes_jobs_is_there() -> None:
    changing = {
        command.name.upper()
        for command in TABLE.values()
        if "write" in command.flags and not command.alias_of
    }
    assert len(changing) >= 15
    assert changing <= NAMED
    assert {"WAITJOB", "PAUSE", "MULTI", "EXEC"} <= NAMED


@pytest.mark.parametrize("name", ["addjob", "nack", "ackjob"])
def test_every_option_of_adding_and_handing_back_is_there(name: str) -> None:
    options = set(re.findall(r"[A-Z]{2,}", TABLE[name.encode()].syntax))
    assert options
    assert options <= NAMED


def test_every_row_has_all_columns() -> None:
    assert {row.count("|") for row in ROWS} == {7}
