"""The tables of the rights that each command needs on its queues, compared with what the
tables of commands say."""

import re
from typing import Any

from disque_bananaq.commands.table import build_table as bananaq_table
from disque_bananaq.core.broker import Broker
from disque_bananaq.core.embedded import EmbeddedStore
from disque_trio.node.commands.table import build_table
from disque_trio.respserver.access import ADD, PATTERN, TAKE
from disque_trio.respserver.command import AnyCommand
from disque_trio.respserver.host import Host
from tests.support.documented import page_of
from tests.support.node_bench import Bench

Row = tuple[list[bytes], dict[int, set[str]]]

# Commands that are about no queue: only rules about commands say who may run them.
CONNECTION = {
    "auth", "client", "discard", "echo", "exec", "hello", "multi", "ping", "quit", "reset",
    "select", "unwatch", "watch", "worker",
}  # fmt: skip
SERVER = {"acl", "command", "info", "latency", "time"}
ADMINISTRATION = {  # about all queues at once, or none
    "bgrewriteaof", "cluster", "config", "debug", "monitor", "restart", "shutdown", "slowlog",
}  # fmt: skip
ITSELF = {
    "credit",  # how much CONSUME may push
    "loadjob",  # refused to everybody
}
ABOUT_NO_QUEUE = CONNECTION | SERVER | ADMINISTRATION | ITSELF


def rows(page: str) -> list[Row]:
    """Return the requests in the table, and what it says that they need."""
    found = re.findall(
        r"^\| `([A-Z]+(?: [^`]*)?)` \|([^|]*)\|([^|]*)\|([^|]*)\|$",
        page_of(page).read_text(),
        re.MULTILINE,
    )
    return [
        (request.encode().split(), {
            need: {name.strip() for name in cell.split(",") if name.strip()}
            for need, cell in zip((TAKE, ADD, 0), cells, strict=True)
        })
        for request, *cells in found
    ]  # fmt: skip


def said(command: AnyCommand, machine: object, request: list[bytes]) -> dict[int, set[str]]:
    """Return what the function of ``command`` says that ``request`` needs."""
    assert command.needs, command.name
    needs: dict[int, set[str]] = {TAKE: set(), ADD: set(), 0: set()}
    accesses, problem = command.accesses(machine, request)
    assert not problem, request
    for name, need in accesses:
        needs[need & (TAKE | ADD)].add(name.decode())
        assert bool(need & PATTERN) == (b"*" in name), name
    return needs


def check(page: str, table: dict[bytes, Any], machine: object, words: dict[bytes, bytes]) -> None:
    """The page is right about each command of the table that is about queues."""
    told = set()
    for request, needs in rows(page):
        command = table[request[0].lower()]
        told.add(command.name)
        args = [words.get(word, word) for word in request]
        assert said(command, machine, args) == needs, request
    about_queues = {
        command.name for command in table.values() if command.needs and not command.alias_of
    }
    assert told == about_queues


def test_the_table_of_the_node_is_right(bench: Bench) -> None:
    id = bench.add("its-queue")
    bench("CRON", "SET", "schedule", "@daily", "its-queue", "job")
    check("commands.md", build_table(), bench.node, {b"id": id})


def test_the_table_of_bananaq_is_right() -> None:
    broker = Broker(EmbeddedStore(), bananaq_table(), Host(), lambda: 0)
    check("bananaq.md", bananaq_table(), broker, {})


def test_what_is_about_no_queue_is_listed_here() -> None:
    for table in (build_table(), bananaq_table()):
        for command in table.values():
            assert (not command.needs) == (command.name in ABOUT_NO_QUEUE), command.name


def test_other_names_of_a_command_need_the_same() -> None:
    table = build_table()
    for command in table.values():
        if command.alias_of:
            assert command.needs == table[command.alias_of.encode()].needs
