"""The users that the pages recommend may do what the pages say, and nothing else."""

import re
import shlex
from typing import Final

import pytest

from disque_trio.node.commands.table import build_table
from disque_trio.respserver.access import ADD, EVERY, KNOW, PATTERN, TAKE
from disque_trio.respserver.acl.catalog import Catalog
from disque_trio.respserver.client import Client
from tests.support import ROOT
from tests.support.documented import page_of
from tests.support.node_bench import Bench

CATALOG: Final = Catalog(build_table().values())

# What a client may do with its own connection.
OWN: Final = frozenset(
    [
        "auth",
        "echo",
        "hello",
        "ping",
        "quit",
        "reset",
        "select",
        "client|getname",
        "client|id",
        "client|info",
        "client|no-touch",
        "client|reply",
        "client|setinfo",
        "client|setname",
        "command|count",
        "command|docs",
        "command|getkeys",
        "command|getkeysandflags",
        "command|info",
        "command|list",
        "worker|report",
    ]
)
LOOKING: Final = frozenset(
    [
        "bindings",
        "cron|get",
        "cron|list",
        "jscan",
        "qget",
        "qkeys",
        "qlen",
        "qowner",
        "qpeek",
        "qscan",
        "qstat",
        "qtop",
        "show",
        "waitjob",
    ]
)
CHANGING: Final = frozenset(
    [
        "ackjob",
        "addjob",
        "bind",
        "cancel",
        "consume",
        "copyjob",
        "credit",
        "cron|del",
        "cron|pause",
        "cron|resume",
        "cron|run",
        "cron|set",
        "dequeue",
        "enqueue",
        "fastack",
        "getjob",
        "nack",
        "pause",
        "promote",
        "qdel",
        "qmove",
        "qset",
        "redrive",
        "unbind",
        "updatejob",
        "working",
    ]
)
OTHERS: Final = [  # what nobody but an operator may do to other clients
    ["CLIENT", "LIST"],
    ["WORKER", "LIST"],
    ["WORKER", "STOP", "1"],
    ["CLIENT", "KILL", "TYPE", "normal"],
    ["CLIENT", "PAUSE", "1000"],
    ["CLIENT", "UNPAUSE"],
    ["CLIENT", "UNBLOCK", "1"],
    ["CLIENT", "NO-EVICT", "on"],
]

# For each page: in its order, the roles with the commands that they may run; of the queues mail.x
# and other, those that they may take from; and those that they may add to.
ROLES: Final[dict[str, list[tuple[str, frozenset[str], str, str]]]] = {
    "users.md": [
        ("shop", OWN | {"addjob"}, "", "mail.x"),
        ("shop", OWN | {"addjob", "waitjob", "qlen", "qowner"}, "", "mail.x"),
        (
            "mailer",
            OWN
            | {"getjob", "consume", "credit", "ackjob", "fastack", "nack", "working", "enqueue"}
            | {"qlen", "qowner", "qget"},
            "mail.x",
            "",
        ),
        ("viewer", OWN | LOOKING | {"info"}, "mail.x other", "mail.x other"),
        ("operator", CATALOG.all, "mail.x other", "mail.x other"),
    ],
    "certificates.md": [
        ("admin", CATALOG.all, "mail other", "mail other"),
        ("producer", OWN | {"addjob"}, "", "mail"),
        ("worker", OWN | LOOKING | CHANGING, "mail", "mail"),
        (
            "monitor",
            OWN | {"info", "qlen", "qstat", "qscan", "cluster|info", "cluster|nodes"}
            | {"slowlog", "slowlog|get", "slowlog|len", "slowlog|reset"},
            "mail other",
            "",
        ),
    ],
}  # fmt: skip


def told(page: str) -> list[list[str]]:
    """The names and the rules of the users with passwords that ``page`` makes, in its order."""
    lines = re.findall(r"^    .*ACL SETUSER (\S+ on .*)$", page_of(page).read_text(), re.M)
    return [shlex.split(line) for line in lines]


FOUND: Final = [
    (page, rules, *expected)
    for page, roles in ROLES.items()
    for rules, (_, *expected) in zip(told(page), roles, strict=True)
]


def named(rules: list[str]) -> tuple[Bench, Client]:
    """A node, and its client that is the user with these ``rules``."""
    bench = Bench()
    assert bench("ACL", "SETUSER", rules[0], *rules[1:], ">known") == b"OK"
    client = bench.client()
    assert bench.ask(client, "AUTH", rules[0], "known") == b"OK"
    return bench, client


def test_the_roles_of_the_pages_are_those_that_are_tried_here() -> None:
    for page, roles in ROLES.items():
        assert [rules[0] for rules in told(page)] == [name for name, *_ in roles]


@pytest.mark.parametrize(("page", "rules", "commands", "takes", "adds"), FOUND)
def test_a_role_may_run_its_commands_and_no_other(
    page: str, rules: list[str], commands: frozenset[str], takes: str, adds: str
) -> None:
    _, client = named(rules)
    assert commands <= CATALOG.all
    for word in CATALOG.all:
        refused = client.user.refusal(word, ())
        assert (refused is None) == (word in commands), word


@pytest.mark.parametrize(("page", "rules", "commands", "takes", "adds"), FOUND)
def test_a_role_reaches_its_queues_and_no_other(
    page: str, rules: list[str], commands: frozenset[str], takes: str, adds: str
) -> None:
    _, client = named(rules)
    for need, names in ((TAKE, takes.split()), (ADD, adds.split())):
        for queue in ("mail.x" if page == "users.md" else "mail", "other", "mailx"):
            may = queue in names or "other" in names
            refused = client.user.root.first_refused([(queue.encode(), need)])
            assert (refused is None) == may, queue
    if "other" not in takes:
        assert client.user.root.first_refused([(EVERY, KNOW | PATTERN)]) == EVERY


@pytest.mark.parametrize(
    ("page", "rules"),
    [(page, rules) for page, rules, commands, *_ in FOUND if commands != CATALOG.all],
)
def test_only_operators_have_power_over_other_clients(page: str, rules: list[str]) -> None:
    bench, client = named(rules)
    for request in OTHERS:
        assert bench.error_of(client, *request).startswith("NOPERM"), request
    assert bench.host.closed == []
    assert bench.host.asked == []
    assert not client.no_evict


def test_the_rights_that_programs_need_give_nothing_dangerous() -> None:
    page = (ROOT / "docs" / "users.md").read_text()
    table = page.split("### What programs need")[1].split("\n- ")[0]
    rights = set(re.findall(r"\+([a-z|@]+)", table))
    assert {"addjob", "getjob", "waitjob"} <= rights
    assert rights <= CATALOG.all - set(CATALOG.by_category["dangerous"])
