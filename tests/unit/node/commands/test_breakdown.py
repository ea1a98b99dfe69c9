"""QTOP: whose jobs a queue has."""

from typing import Any

import pytest

from disque_trio.node.commands import breakdown
from disque_trio.node.core.queues import adders
from disque_trio.node.core.queues.adders import MOST
from disque_trio.respserver.client import Client
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench


def top(bench: Bench, kind: str, *words: str | int, queue: str = "q") -> dict[str, Any]:
    """The fields of the reply."""
    reply: Any = bench("QTOP", queue, "BY", kind, *words)
    fields = {name.decode(): value for name, value in zip(reply[::2], reply[1::2], strict=True)}
    assert fields.pop("by") == kind.encode()
    return fields


def rows(bench: Bench, kind: str, *words: str | int, queue: str = "q") -> list[Any]:
    """The rows, with names as text, of a queue that has no others."""
    fields = top(bench, kind, *words, queue=queue)
    assert fields["others"][1:] in ([0, 0, 0, 0], [-1, 0, 0, 0])
    assert fields["unread"] == 0
    return [(row[0].decode(), *row[1:]) for row in fields["rows"]]


def named(bench: Bench, name: str) -> Client:
    client = bench.client()
    assert bench.ask(client, "CLIENT", "SETNAME", name) == b"OK"
    return client


def add(bench: Bench, client: Client, *options: str | int, queue: str = "q") -> bytes:
    id = bench.ask(client, "ADDJOB", queue, "body", 0, *options)
    assert isinstance(id, str | bytes)
    return id if isinstance(id, bytes) else id.encode()


@pytest.mark.parametrize("kind", ["group", "task"])
def test_the_largest_comes_first(bench: Bench, kind: str) -> None:
    def options_of(name: str) -> tuple[str | int, ...]:
        return ("GROUP", name) if kind == "group" else ("HEADERS", 2, "a", "b", "task", name)

    for name, count in (("few", 1), ("many", 5), ("some", 2)):
        for _ in range(count):
            bench.add("q", "body", *options_of(name))
    bench.add()
    bench.add("other", "body", *options_of("many"))
    assert rows(bench, kind) == [
        ("many", -1, 5, 0, 0),
        ("some", -1, 2, 0, 0),
        ("", -1, 1, 0, 0),
        ("few", -1, 1, 0, 0),
    ]


def test_jobs_count_by_where_they_are(bench: Bench) -> None:
    ids = [bench.add("q", "body", "GROUP", "g") for _ in range(4)]
    bench.add("q", "body", "GROUP", "g", "DELAY", 10)
    assert len(bench.get_all("q", count=2)) == 2
    assert rows(bench, "group") == [("g", -1, 2, 2, 1)]
    bench("ACKJOB", *ids)
    assert rows(bench, "group") == [("g", -1, 0, 0, 1)]


def test_clients_go_by_their_names_or_their_addresses(bench: Bench) -> None:
    one, other = named(bench, "shop"), named(bench, "shop")
    unnamed = bench.client()
    for client in (one, other, one, unnamed):
        add(bench, client)
    ip = f"10.0.0.{unnamed.id}"
    assert rows(bench, "client") == [("shop", 3, 3, 0, 0), (ip, 1, 1, 0, 0)]
    assert bench.ask(unnamed, "CLIENT", "SETNAME", "late") == b"OK"
    add(bench, unnamed)
    assert rows(bench, "client")[1:] == [(ip, 1, 1, 0, 0), ("late", 1, 1, 0, 0)]


def test_what_was_added_stays_when_the_jobs_are_gone(bench: Bench) -> None:
    client = named(bench, "shop")
    for _ in range(3):
        bench("ACKJOB", add(bench, client))
    assert rows(bench, "client") == [("shop", 3, 0, 0, 0)]
    add(bench, client, "DELAY", 10, queue="later")
    assert rows(bench, "client", queue="later") == [("shop", 1, 0, 0, 1)]


def test_users_are_those_who_added_the_jobs(bench: Bench) -> None:
    for user in ("anna", "bob"):
        bench("ACL", "SETUSER", user, "on", "nopass", "~*", "+@all")
    for user, count in (("anna", 1), ("bob", 3)):
        client = bench.client()
        assert bench.ask(client, "AUTH", user, "x") == b"OK"
        for _ in range(count):
            add(bench, client)
    bench.add()
    assert rows(bench, "user") == [
        ("bob", 3, 3, 0, 0),
        ("anna", 1, 1, 0, 0),
        ("default", 1, 1, 0, 0),
    ]


def test_jobs_of_other_nodes_have_no_user_here() -> None:
    mesh = Mesh(3)
    mesh.add(0, "REPLICATE", 1)
    mesh[1].block("q")
    mesh.add(0, "REPLICATE", 2)
    mesh.settle()
    waiting = mesh[1].block("q")
    mesh.settle()
    assert not waiting.blocked
    assert rows(mesh[1], "user") == [("", 0, 0, 2, 0)]
    assert rows(mesh[0], "user") == [("default", 2, 0, 0, 0)]


@pytest.mark.parametrize("kind", ["group", "user"])
def test_a_delayed_job_counts_on_one_node(kind: str) -> None:
    mesh = Mesh(3)
    mesh.add(0, "DELAY", 10, "GROUP", "g")
    found = [row for bench in mesh.nodes for row in rows(bench, kind)]
    assert [row[4] for row in found] == [1]


def test_the_others_are_counted_together(bench: Bench) -> None:
    for number in range(20):
        for _ in range(1 + (number < 3)):
            bench.add("q", "body", "GROUP", f"{number:02}")
    fields = top(bench, "group", "COUNT", 5)
    assert [row[0] for row in fields["rows"]] == [b"00", b"01", b"02", b"03", b"04"]
    assert fields["others"] == [15, -1, 15, 0, 0]


def test_very_many_names_are_all_counted(bench: Bench) -> None:
    for number in range(300):
        bench.add("q", "body", "GROUP", f"{number}")
    for _ in range(30):
        bench.add("q", "body", "GROUP", "large")
    shown = top(bench, "group", "COUNT", 1000)
    assert len(shown["rows"]) == 301
    assert shown["rows"][0] == [b"large", -1, 30, 0, 0]
    assert breakdown.MOST_NAMES >= breakdown.MOST_ROWS


def test_of_very_many_clients_those_that_add_most_stay_known(bench: Bench) -> None:
    noisy = named(bench, "noisy")
    quiet = bench.client()
    for number in range(3 * MOST):
        for _ in range(3):
            add(bench, noisy)
        bench.ask(quiet, "CLIENT", "SETNAME", f"c{number}")
        add(bench, quiet)
    fields = top(bench, "client", "COUNT", 1000)
    assert fields["rows"][0] == [b"noisy", 9 * MOST, 9 * MOST, 0, 0]
    known = sum(row[1] for row in fields["rows"])
    names, added, *_ = fields["others"]
    assert names == added > 0
    assert known + added == 12 * MOST
    assert bench.node.queues.adders.count <= 2 * MOST


def test_clients_of_all_queues_together_are_bounded(bench: Bench) -> None:
    bench.node.queues.adders.count = adders.MOST_OF_NODE
    bench.add()
    fields = top(bench, "client")
    assert fields["rows"] == [[b"", 0, 1, 0, 0]]
    assert fields["others"] == [0, 1, 0, 0, 0]


def test_nobody_is_known_of_a_queue_that_was_forgotten(bench: Bench) -> None:
    bench("ACKJOB", bench.add())
    assert bench.node.queues.adders.count == 1
    bench.advance(301)
    bench.evict_idle_queues()
    assert bench.node.queues.adders.count == 0
    assert rows(bench, "user") == []
    assert bench.node.queues.known_traffic(b"q") is None


def test_long_names_are_cut(bench: Bench) -> None:
    bench.add("q", "body", "HEADERS", 1, "task", "x" * 1000)
    assert rows(bench, "task") == [("x" * 256, -1, 1, 0, 0)]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("BY",), "ERR wrong number of arguments for 'qtop' command"),
        (("BY", "colour"), "ERR BY needs group, task, user or client"),
        (("BY", "group", "COUNT", 0), "ERR COUNT must be a number from 1 to 1000"),
        (("BY", "group", "COUNT", "x"), "ERR COUNT must be a number from 1 to 1000"),
        (("GROUP", "BY"), "ERR syntax error"),
    ],
)
def test_wrong_words_are_refused(bench: Bench, words: tuple[str | int, ...], problem: str) -> None:
    assert bench.error("QTOP", "q", *words) == problem
