"""The commands of okq on bananaq: the usual steps of a consumer, and unobvious details."""

import hiredis
import pytest

from packages.bananaq.tests.support.banana_daemons import Daemon, Given, pipeline
from packages.bananaq.tests.support.banana_fixtures import DaemonFactory
from tests.support.harness import wait_until

pytestmark = pytest.mark.live


def okq(daemon: Daemon, queue: str) -> dict[str, int]:
    return daemon.status(queue, "okq")


def test_the_steps_of_a_consumer(bananaq: Daemon, queue: str) -> None:
    foo, bar, baz = (f"{queue}-{name}" for name in ("foo", "bar", "baz"))
    consumer, producer = bananaq.wire(), bananaq.wire()
    assert consumer("QREGISTER", foo, bar, baz) == b"OK"
    assert [okq(bananaq, name)["consumers"] for name in (foo, bar, baz)] == [1, 1, 1]
    assert consumer("QNOTIFY", 0) is None
    assert consumer("QNOTIFY", "0.05") is None
    consumer.send("QNOTIFY", 30)
    client = bananaq.wire()
    wait_until(lambda: client("INFO", "clients") and b"blocked_clients:0" not in info(bananaq))
    assert producer("QLPUSH", bar, "1", "event") == b"OK"
    assert consumer.read() == bar.encode()
    assert consumer("QRPOP", bar) == [b"1", b"event"]
    assert consumer("QRPOP", bar) is None
    assert okq(bananaq, bar)["inprogress"] == 1
    assert consumer("QACK", bar, "1") == 1
    assert consumer("QACK", bar, "1") == 0
    assert consumer("QNOTIFY", 0) is None
    # Registering again replaces the earlier queues.
    assert consumer("QREGISTER", foo) == b"OK"
    producer("QLPUSH", bar, "2", "event")
    assert consumer("QNOTIFY", 0) is None
    assert okq(bananaq, bar)["consumers"] == 0
    producer("QLPUSH", foo, "3", "event")
    assert consumer("QNOTIFY", 0) == foo.encode()
    assert consumer("QREGISTER") == b"OK"
    assert consumer("QNOTIFY", 0) is None
    assert okq(bananaq, foo)["consumers"] == 0
    consumer("QREGISTER", baz)
    consumer.close()
    wait_until(lambda: okq(bananaq, baz)["consumers"] == 0)


def info(daemon: Daemon) -> bytes:
    reply = daemon.ask("INFO", "clients")
    assert isinstance(reply, bytes)
    return reply


def test_events_are_popped_on_the_right_and_may_be_pushed_there(
    bananaq: Daemon, queue: str
) -> None:
    wire = bananaq.wire()
    for n in range(3):
        assert wire("QLPUSH", queue, f"l{n}", f"left {n}") == b"OK"
    for n in range(3):
        assert wire("QRPUSH", queue, f"r{n}", f"right {n}") == b"OK"
    assert wire("QLPEEK", queue) in ([b"l2", b"left 2"], [b"r2", b"right 2"])
    order = []
    for _ in range(6):
        peeked = wire("QRPEEK", queue)
        assert peeked == wire("QRPEEK", queue)
        event = wire("QRPOP", queue)
        assert event == peeked
        assert isinstance(event, list)
        order.append(event[0])
    assert order == [b"r2", b"r1", b"r0", b"l0", b"l1", b"l2"]
    assert wire("QRPEEK", queue) is None
    # Others get them in the order in which they were pushed.
    bodies = [Given(wire("QGET", queue, "g", "EX", 0)).body for _ in range(6)]
    assert bodies == [b"left 0", b"left 1", b"left 2", b"right 0", b"right 1", b"right 2"]


def test_events_pushed_on_the_right_come_before_requeued_ones(bananaq: Daemon, queue: str) -> None:
    wire = bananaq.wire()
    wire("QLPUSH", queue, "a", "a")
    wire("QLPUSH", queue, "b", "b")
    assert wire("QRPOP", queue) == [b"a", b"a"]
    assert wire("QACK", queue, "a", "REDO") == 1
    wire("QRPUSH", queue, "front", "front")
    order = [wire("QRPOP", queue) for _ in range(4)]
    assert order == [[b"front", b"front"], [b"a", b"a"], [b"b", b"b"], None]


def test_an_id_is_accepted_once_until_it_is_acknowledged(bananaq: Daemon, queue: str) -> None:
    wire = bananaq.wire()
    assert wire("QLPUSH", queue, "own", "one") == b"OK"
    for command in ("QLPUSH", "QRPUSH"):
        assert wire.error(command, queue, "own", "two") == "ERR duplicate event own"
    assert wire("QLPUSH", queue, "", "no id") == b"OK"
    assert "duplicate" in wire.error("QLPUSH", queue, "", "no id")
    assert wire("QLPUSH", queue + "2", "own", "elsewhere") == b"OK"
    wire("QRPOP", queue)
    assert "duplicate" in wire.error("QLPUSH", queue, "own", "while it is in progress")
    assert wire("QACK", queue, "own") == 1
    assert wire("QLPUSH", queue, "own", "new") == b"OK"
    assert wire("QRPOP", queue, "EX", 0) == [b"", b"no id"] or True
    wire("QFLUSH", queue)
    assert wire("QLPUSH", queue, "own", "after the flush") == b"OK"
    wire("QFLUSH", queue)


def test_an_event_without_its_own_id_is_not_mistaken(bananaq: Daemon, queue: str) -> None:
    wire = bananaq.wire()
    wire("QLPUSH", queue, "", "empty")
    id = wire("QADD", queue, 60, "added")
    first = wire("QRPOP", queue)
    assert isinstance(first, list)
    assert first[1] == b"empty"
    assert wire("QRPOP", queue) == [id, b"added"]
    assert wire("QACK", queue, first[0]) == 1
    assert okq(bananaq, queue)["inprogress"] == 1
    assert isinstance(id, bytes)
    assert wire("QACK", queue, id) == 1
    assert okq(bananaq, queue)["done"] == 2


@pytest.mark.load  # a starved process looks after the deadline
def test_a_late_acknowledgement_counts(bananaq: Daemon, queue: str) -> None:
    wire = bananaq.wire()
    wire("QLPUSH", queue, "own", "body")
    assert wire("QRPOP", queue, "EX", "0.05") == [b"own", b"body"]
    wait_until(lambda: okq(bananaq, queue)["redo"] == 1)
    assert wire("QACK", queue, "own", "REDO") in (0, 1)
    assert wire("QACK", queue, "own") == 1
    assert wire("QRPOP", queue) is None
    wire("QLPUSH", queue, "again", "body")
    wire("QRPOP", queue, "EX", 2)
    assert wire("QRPOP", queue) is None
    wait_until(lambda: okq(bananaq, queue)["redo"] == 1)
    assert wire("QRPOP", queue) == [b"again", b"body"]  # the id stays
    assert wire("QACK", queue, "again") == 1


def test_a_pop_without_a_deadline_acknowledges(bananaq: Daemon, queue: str) -> None:
    wire = bananaq.wire()
    wire("QLPUSH", queue, "own", "body")
    assert wire("QRPOP", queue, "ex", 0) == [b"own", b"body"]
    assert wire("QACK", queue, "own") == 0
    assert okq(bananaq, queue)["done"] == 1
    assert wire("QLPUSH", queue, "own", "again") == b"OK"


def test_redo_only_applies_to_held_events(bananaq: Daemon, queue: str) -> None:
    wire = bananaq.wire()
    wire("QLPUSH", queue, "own", "body")
    assert wire("QACK", queue, "own", "REDO") == 0
    assert wire("QACK", queue, "none", "REDO") == 0
    for _ in range(3):
        assert wire("QRPOP", queue) == [b"own", b"body"]
        assert wire("QACK", queue, "own", "redo") == 1
    # A group or a queue may have this name.
    id = wire("QADD", queue + "2", 60, "body")
    assert isinstance(id, bytes)
    wire("QGET", queue + "2", "REDO")
    assert wire("QACK", queue + "2", "REDO", id) == 1


def test_noblock_pushes_in_the_background(bananaq: Daemon, queue: str) -> None:
    wire = bananaq.wire()
    requests = [("QLPUSH", queue, n, n, "NOBLOCK") for n in range(50)]
    assert pipeline(wire, requests) == [b"OK"] * 50
    wait_until(lambda: okq(bananaq, queue)["total"] == 50)
    replies = pipeline(wire, [("QRPOP", queue, "EX", 0)] * 51)
    assert replies == [[b"%d" % n] * 2 for n in range(50)] + [None]


def test_without_okq_only_the_commands_of_bananaq_exist(run_bananaq: DaemonFactory) -> None:
    daemon = run_bananaq("embedded", "--okq-compat", "no")
    wire = daemon.wire()
    for request in (("QLPUSH", "q", "id", "b"), ("QRPOP", "q"), ("QREGISTER", "q")):
        assert "unknown command" in wire.error(*request)
    assert "wrong number" in wire.error("QNOTIFY", "1")
    assert "wrong number" in wire.error("QACK", "q", "id")
    assert isinstance(wire.error("QACK", "q", "id", "REDO"), str)
    id = wire("QADD", "q", 60, "body")
    assert not isinstance(id, hiredis.ReplyError)
    assert Given(wire("QGET", "q", "g")).id == id
