"""Every command is in the categories where an operator looks for it."""

import pytest

from disque_bananaq.commands.table import build_table as bananaq_table
from disque_trio.node.commands.table import build_table as node_table
from disque_trio.respserver.acl.catalog import Catalog
from disque_trio.respserver.categories import CATEGORIES
from disque_trio.respserver.command import AnyCommand
from disque_trio.syntax import parse

TABLES: dict[str, dict[bytes, AnyCommand]] = {
    "node": {**node_table()},
    "bananaq": {**bananaq_table()},
}
EVERY = [(name, command) for name, table in TABLES.items() for command in table.values()]


@pytest.mark.parametrize(
    ("server", "command"), EVERY, ids=[f"{name}-{command.name}" for name, command in EVERY]
)
def test_every_command_is_in_a_category(server: str, command: AnyCommand) -> None:
    for found in (command.categories, *command.parts.values()):
        assert found <= set(CATEGORIES)
        assert len(found & {"fast", "slow"}) == 1
    if command.group in ("jobs", "queues", "events", "okq"):
        for found in command.parts.values() or [command.categories]:
            assert len(found & {"read", "write"}) == 1
    if "admin" in command.flags and not command.parts:
        assert {"admin", "dangerous"} <= command.categories


@pytest.mark.parametrize(
    ("server", "command"),
    [(name, command) for name, command in EVERY if command.parts],
    ids=[f"{name}-{command.name}" for name, command in EVERY if command.parts],
)
def test_every_subcommand_that_a_command_shows_is_known_to_rules(
    server: str, command: AnyCommand
) -> None:
    assert {one.token.lower() for one in parse(command.syntax)} == set(command.parts)


DANGEROUS = [
    "config|get",
    "config|set",
    "config|rewrite",
    "debug|flushall",
    "debug|segfault",
    "shutdown",
    "monitor",
    "client|kill",
    "client|list",
    "acl|setuser",
    "acl|load",
    "slowlog|get",
    "latency|reset",
    "bgrewriteaof",
    "info",
]


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (
            "node",
            [
                *DANGEROUS,
                "cluster|forget",
                "cluster|reset",
                "restart",
                "qpurge",
                "deljob",
                "loadjob",
            ],
        ),
        ("bananaq", [word for word in [*DANGEROUS, "qflush"] if not word.startswith("debug")]),
    ],
)
def test_what_is_dangerous_is_in_dangerous(server: str, words: list[str]) -> None:
    assert set(words) <= set(Catalog(TABLES[server].values()).by_category["dangerous"])


def test_what_programs_need_is_not_dangerous() -> None:
    safe = "addjob getjob ackjob nack working consume credit show qlen qstat ping echo hello auth"
    safe += " acl|whoami client|setname client|setinfo command multi exec cluster|nodes"
    dangerous = Catalog(TABLES["node"].values()).by_category["dangerous"]
    assert not set(safe.split()) & set(dangerous)


def test_pausing_a_queue_changes_it() -> None:
    catalog = Catalog(TABLES["node"].values())
    assert "pause" in catalog.by_category["write"]
    assert "pause" not in catalog.by_category["read"]
    assert "cron|list" in catalog.by_category["read"]
    assert "cron|set" in catalog.by_category["write"]
