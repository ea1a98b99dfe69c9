"""Schedules and bindings act with the rights that the user who made them has now."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from disque_trio.node.core.shared import binding_words, schedule_words
from disque_trio.node.core.shared.bindings import Bindings
from disque_trio.node.core.shared.makers import MOST_TOLD, SLICE
from disque_trio.node.core.shared.schedules import Schedules
from disque_trio.node.core.ticks import STAGGER
from disque_trio.protocol.fields import pack_fields, pack_number
from disque_trio.resp.inline import quote
from disque_trio.respserver.client import Client
from tests.support.mesh import Mesh
from tests.support.node_bench import Bench

RULES = ("on", "nopass", "~my.*", "%R~@news", "-@all", "+cron", "+bind")
NODE = b"f" * 40


def allow(bench: Bench, name: str = "eve", *rules: str) -> None:
    assert bench("ACL", "SETUSER", name, "reset", *(rules or RULES)) == b"OK"


def user(bench: Bench, name: str = "eve") -> Client:
    """A client that has logged in."""
    client = bench.client()
    assert bench.ask(client, "AUTH", name, "any") == b"OK"
    return client


def advance(bench: Bench, seconds: int) -> None:
    for _ in range(seconds):
        bench.advance(1)
        bench.node.commit()


def set_both(bench: Bench, name: str = "eve") -> None:
    """Let a user set a schedule and a binding."""
    client = user(bench, name)
    assert bench.ask(client, "CRON", "SET", "s", "@every 10s", "my.q", "body") == b"OK"
    assert bench.ask(client, "BIND", "news", "my.copy") == b"OK"


def schedule(bench: Bench) -> dict[bytes, Any]:
    return bench.fields("CRON", "GET", "s")


def binding(bench: Bench) -> dict[bytes, Any]:
    """The only entry of BINDINGS FULL."""
    reply: Any = bench("BINDINGS", "FULL")
    ((words),) = reply
    return dict(zip(words[::2], words[1::2], strict=True))


def published(bench: Bench) -> int:
    """The number of queues that a job for the topic gets into."""
    reply: Any = bench("ADDJOB", "@news", "body", 0)
    return len(reply)


def stopped(bench: Bench) -> tuple[str, str]:
    found = bench.info("queues")
    return found["schedules_without_rights"], found["bindings_without_rights"]


@pytest.fixture
def eves(bench: Bench) -> Bench:
    """A node where eve has set a schedule and a binding."""
    allow(bench)
    set_both(bench)
    advance(bench, 10)
    assert bench.number_queued("my.q") == 1
    assert published(bench) == 1
    return bench


def test_they_name_their_user(eves: Bench) -> None:
    assert schedule(eves)[b"user"] == b"eve"
    assert binding(eves) == {b"topic": b"news", b"queue": b"my.copy", b"user": b"eve"}
    assert b"problem" not in schedule(eves)
    (listed,) = eves("CRON", "LIST")  # type: ignore[misc]
    assert listed[listed.index(b"user") + 1] == b"eve"  # type: ignore[index, union-attr]
    assert eves("BINDINGS") == [[b"news", b"my.copy"]]
    assert eves("BINDINGS", "FULL", "QUEUE", "other") == []
    assert eves("BINDINGS", "MATCH", "other", "FULL") == []


def test_those_of_the_default_user_belong_to_nobody(bench: Bench) -> None:
    bench("CRON", "SET", "s", "@every 10s", "my.q", "body")
    bench("BIND", "news", "my.copy")
    assert b"user" not in schedule(bench)
    assert binding(bench) == {b"topic": b"news", b"queue": b"my.copy"}
    bench("ACL", "SETUSER", "default", "resetkeys")
    advance(bench, 10)
    bench("ACL", "SETUSER", "default", "allkeys")
    assert bench.number_queued("my.q") == 1


LOST = {
    "does not exist": ("ACL", "DELUSER", "eve"),
    "is off": ("ACL", "SETUSER", "eve", "off"),
}


@pytest.mark.parametrize("why", LOST)
def test_they_stop_without_their_user(eves: Bench, why: str) -> None:
    eves(*LOST[why])
    advance(eves, 30)
    assert eves.number_queued("my.q") == 1
    assert published(eves) == 0
    assert schedule(eves)[b"problem"] == f"user eve {why}".encode()
    assert binding(eves)[b"problem"] == f"user eve {why}".encode()
    assert stopped(eves) == ("1", "1")
    allow(eves)
    advance(eves, 10)
    assert eves.number_queued("my.q") >= 2
    assert published(eves) == 1
    assert b"problem" not in schedule(eves)
    assert b"problem" not in binding(eves)
    assert stopped(eves) == ("0", "0")


def test_a_schedule_stops_where_its_user_may_no_longer_add(eves: Bench) -> None:
    allow(eves, "eve", "on", "nopass", "~your.*", "~my.copy", "%R~@news", "+cron", "+bind")
    advance(eves, 20)
    assert eves.number_queued("my.q") == 1
    assert schedule(eves)[b"problem"] == b'user eve may not add to "my.q"'
    assert published(eves) == 1
    assert stopped(eves) == ("1", "0")


def test_a_binding_stops_where_its_user_may_no_longer_read_or_add(eves: Bench) -> None:
    allow(eves, "eve", "on", "nopass", "~my.*", "+cron", "+bind")
    assert published(eves) == 0
    assert binding(eves)[b"problem"] == b'user eve may not take from "@news"'
    allow(eves, "eve", "on", "nopass", "~my.q", "%R~@news", "+cron", "+bind")
    assert published(eves) == 0
    assert binding(eves)[b"problem"] == b'user eve may not add to "my.copy"'
    advance(eves, 20)
    assert eves.number_queued("my.q") == 3


def test_they_stop_where_their_user_may_no_longer_make_such(eves: Bench) -> None:
    eves("ACL", "SETUSER", "eve", "-cron|set", "-bind")
    advance(eves, 20)
    assert eves.number_queued("my.q") == 1
    assert published(eves) == 0
    assert schedule(eves)[b"problem"] == b"user eve may not run CRON SET"
    assert binding(eves)[b"problem"] == b"user eve may not run BIND"


def test_each_change_is_told_once(eves: Bench) -> None:
    told: list[tuple[str, str]] = []
    for makers in (eves.node.ticks.makers, eves.node.topics.makers):
        makers.tell = lambda what, details: told.append((what, details))
    eves("ACL", "LOG", "RESET")
    eves("ACL", "DELUSER", "eve")
    eves("ACL", "SETUSER", "bob")
    advance(eves, 60)
    assert [details for _, details in told] == [
        '"s" (user eve does not exist)',
        '"news my.copy" (user eve does not exist)',
    ]
    log: Any = eves("ACL", "LOG")
    entries = [dict(zip(words[::2], words[1::2], strict=True)) for words in log]
    assert [
        (e[b"reason"], e[b"context"], e[b"object"], e[b"username"], e[b"count"]) for e in entries
    ] == [
        (b"auth", b"binding", b"news my.copy", b"eve", 1),
        (b"auth", b"schedule", b"s", b"eve", 1),
    ]
    allow(eves)
    advance(eves, 1)
    assert [details for _, details in told[2:]] == ['"s"', '"news my.copy"']


def test_very_many_are_told_in_slices(bench: Bench) -> None:
    allow(bench, "eve", "on", "nopass", "%R~@*", "~my.*", "+bind")
    client = user(bench)
    for number in range(SLICE + 3):
        assert bench.ask(client, "BIND", f"t{number}", "my.q") == b"OK"
    advance(bench, 1)
    told: list[str] = []
    bench.node.topics.makers.tell = lambda what, details: told.append(details)
    bench("ACL", "DELUSER", "eve")
    bench.node.tick(bench.now)
    assert stopped(bench) == ("0", str(SLICE))
    bench.node.tick(bench.now)
    assert stopped(bench) == ("0", str(SLICE + 3))
    assert [len(details.split(", ")) for details in told] == [MOST_TOLD + 1, 3]
    assert told[0].endswith(f"and {SLICE - MOST_TOLD} more")


def test_the_last_who_sets_a_schedule_has_it(eves: Bench) -> None:
    allow(eves, "bob")
    eves.ask(user(eves, "bob"), "CRON", "SET", "s", "@every 10s", "my.q", "body")
    eves("ACL", "DELUSER", "eve")
    eves("CRON", "PAUSE", "s")
    eves("CRON", "RESUME", "s")
    assert schedule(eves)[b"user"] == b"bob"
    advance(eves, 10)
    assert eves.number_queued("my.q") == 2
    eves("CRON", "SET", "s", "@every 10s", "my.q", "body")
    assert b"user" not in schedule(eves)


def test_a_binding_changes_hands_when_its_user_may_no_longer_have_it(eves: Bench) -> None:
    allow(eves, "bob")
    bob = user(eves, "bob")
    eves.ask(bob, "BIND", "news", "my.copy")
    assert binding(eves)[b"user"] == b"eve"
    eves("ACL", "DELUSER", "eve")
    assert published(eves) == 0
    eves.ask(bob, "BIND", "news", "my.copy")
    assert binding(eves)[b"user"] == b"bob"
    assert published(eves) == 1


def test_a_binding_that_is_repeated_in_a_pipeline_keeps_its_user(bench: Bench) -> None:
    allow(bench)
    allow(bench, "bob")
    eve, bob = user(bench), user(bench, "bob")
    bench.send(eve, "BIND", "news", "my.copy")
    bench.send(bob, "BIND", "news", "my.copy")
    assert binding(bench)[b"user"] == b"eve"


def test_a_deleted_schedule_no_longer_counts(eves: Bench) -> None:
    eves("ACL", "DELUSER", "eve")
    advance(eves, 1)
    eves("CRON", "DEL", "s")
    eves("UNBIND", "news", "my.copy")
    advance(eves, 1)
    assert stopped(eves) == ("0", "0")


def test_a_node_where_the_user_has_the_rights_adds_the_jobs(bench: Bench) -> None:
    mesh = Mesh(2)
    mesh.advance(6)
    for each in mesh.nodes:
        allow(each)
    assert mesh[0].ask(user(mesh[0]), "CRON", "SET", "s", "@every 30s", "my.q", "b") == b"OK"
    mesh.advance(30)
    jobs = [job.id for job in mesh[0].node.store.jobs.values()]
    assert len(jobs) == 1
    totals = [int(each.info("stats")["total_ticks"]) for each in mesh.nodes]
    usual = totals.index(1)
    mesh[usual]("ACL", "DELUSER", "eve")
    mesh.advance(30 + STAGGER / 1000)
    other = mesh[1 - usual]
    assert int(other.info("stats")["total_ticks"]) == 1
    assert b"problem" not in schedule(other)
    assert schedule(mesh[usual])[b"problem"] == b"user eve does not exist"
    other("ACL", "DELUSER", "eve")
    mesh.advance(120)
    assert sum(int(each.info("stats")["total_ticks"]) for each in mesh.nodes) == 2


# ---- files and other nodes --------------------------------------------------------------------

KINDS: dict[str, tuple[Callable[[], Any], Callable[[Any], Iterator[bytes]], Any, bytes]] = {
    "schedules": (Schedules, schedule_words.format_file, schedule_words.parse_file, b"s"),
    "bindings": (Bindings, binding_words.format_file, binding_words.parse_file, b"news my.copy"),
}


def known_of(bench: Bench, kind: str) -> Any:
    return bench.node.ticks.schedules if kind == "schedules" else bench.node.topics.bindings


def text_of(bench: Bench, kind: str) -> bytes:
    return b"".join(KINDS[kind][1](known_of(bench, kind)))


@pytest.mark.parametrize("kind", KINDS)
def test_their_user_is_in_the_file(eves: Bench, kind: str) -> None:
    make, _, parse, name = KINDS[kind]
    known = make()
    assert parse(text_of(eves, kind), known) == []
    assert known.named(name).user == b"eve"
    assert known.digest == known_of(eves, kind).digest


@pytest.mark.parametrize("kind", KINDS)
def test_earlier_releases_take_the_user_for_a_comment(eves: Bench, kind: str) -> None:
    text = text_of(eves, kind)
    rest = [line for line in text.split(b"\n") if not line.startswith(b"#")]
    assert b'"eve"' in text
    assert not any(b'"eve"' in line or line.startswith(b"newer") for line in rest)
    make, _, parse, name = KINDS[kind]
    known = make()
    assert parse(b"\n".join(rest), known) == []
    assert known.named(name).user == b""
    # A node of such a release learns the user from the others when it is upgraded.
    assert known_of(eves, kind).entries[name].after(known.entries[name])


@pytest.mark.parametrize("kind", KINDS)
def test_the_user_is_read_from_what_an_earlier_build_kept(eves: Bench, kind: str) -> None:
    make, _, parse, name = KINDS[kind]
    entry = known_of(eves, kind).entries[name]
    known = make()
    assert parse(b"newer %b %b\n" % (quote(name), quote(entry.fields())), known) == []
    assert known.named(name).user == b"eve"
    assert known.strange == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_value_that_was_changed_by_hand_belongs_to_nobody(eves: Bench, kind: str) -> None:
    make, _, parse, name = KINDS[kind]
    lines = text_of(eves, kind).split(b"\n")
    word = b"schedule 1 " if kind == "schedules" else b"binding 1 "
    changed = [line.replace(word, word[:-2] + b"2 ") for line in lines]
    assert changed != lines
    known = make()
    assert parse(b"\n".join(changed), known) == []
    assert known.named(name).user == b""


def test_other_nodes_know_the_user() -> None:
    mesh = Mesh(2)
    for each in mesh.nodes:
        allow(each)
    set_both(mesh[0])
    mesh.settle()
    assert schedule(mesh[1])[b"user"] == b"eve"
    assert binding(mesh[1])[b"user"] == b"eve"
    mesh[1]("ACL", "DELUSER", "eve")
    assert published(mesh[1]) == 0
    assert b"problem" not in binding(mesh[0])


@pytest.mark.parametrize("name", [b"a\x1b[2J", b"two words", b"\xff"])
def test_what_is_no_name_of_a_user_is_not_taken(bench: Bench, name: bytes) -> None:
    fields = [(1, b"news q"), (2, pack_number(1)), (3, NODE), (26, name)]
    bench.node.topics.sharing.on_packet(NODE, [(1, pack_fields(fields))])
    assert bench("BINDINGS") == []
    assert bench.info("stats")["shared_changes_refused"] == "1"
