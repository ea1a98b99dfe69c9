"""Waiting clients of bananaq: QNOTIFY and QGET with BLOCK, and what wakes them."""

import time

import hiredis
import pytest

from packages.bananaq.tests.support.banana_daemons import Daemon, Given, now_us, waiting
from packages.bananaq.tests.support.banana_fixtures import DaemonFactory
from tests.support.harness import HANG_SECONDS, Wire, wait_until

pytestmark = pytest.mark.live

LATE = 10.0  # s after a deadline


def consumers(daemon: Daemon, queue: str, group: str) -> int:
    return daemon.status(queue, group)["consumers"]


def wait_for_consumers(daemon: Daemon, queue: str, group: str, count: int) -> None:
    wait_until(lambda: consumers(daemon, queue, group) == count)


def notifier(daemon: Daemon, group: str, *queues: str, seconds: float = HANG_SECONDS) -> Wire:
    """Return a client that waits in QNOTIFY."""
    wire = daemon.wire()
    before = [consumers(daemon, queue, group) for queue in queues]
    wire.send("QNOTIFY", group, str(seconds), *queues)
    for queue, count in zip(queues, before, strict=True):
        wait_for_consumers(daemon, queue, group, count + 1)
    return wire


def taker(
    daemon: Daemon, queue: str, group: str, *options: str, seconds: float = HANG_SECONDS
) -> Wire:
    """Return a client that waits in QGET."""
    wire = daemon.wire()
    before = consumers(daemon, queue, group)
    wire.send("QGET", queue, group, "BLOCK", str(seconds), *options)
    wait_for_consumers(daemon, queue, group, before + 1)
    return wire


@pytest.mark.load  # when it ends is the question
@pytest.mark.parametrize("command", ["QNOTIFY g 0.3 {q} {q}2", "QGET {q} g BLOCK 0.3"])
def test_a_wait_ends_at_its_timeout(bananaq: Daemon, queue: str, command: str) -> None:
    wire = bananaq.wire()
    started = time.monotonic()
    assert wire(*command.format(q=queue).split()) is None
    assert 0.29 <= time.monotonic() - started < 0.3 + LATE
    assert consumers(bananaq, queue, "g") == 0
    assert wire("PING") == b"PONG"


@pytest.mark.load  # when it ends is the question
def test_a_client_that_waits_for_no_queue_waits_until_its_timeout(bananaq: Daemon) -> None:
    wire = bananaq.wire()
    started = time.monotonic()
    assert wire("QNOTIFY", "g", "0.2") is None
    assert wire("QNOTIFY", "0.2") is None  # the form of okq, with nothing registered
    assert 0.39 <= time.monotonic() - started < 0.4 + 2 * LATE


def test_the_name_of_a_queue_with_an_event_is_returned_at_once(bananaq: Daemon, queue: str) -> None:
    wire = bananaq.wire()
    queues = [f"{queue}-{n}" for n in range(20)]
    for name in queues[5:15]:
        wire("QADD", name, 60, "body")
    told = {wire("QNOTIFY", "g", timeout, *queues) for timeout in (0, 20) * 30}
    assert told <= {name.encode() for name in queues[5:15]}
    assert len(told) > 1  # not always the first, so none starves
    for name in queues[5:15]:
        wire("QGET", name, "g")
    assert wire("QNOTIFY", "g", 0, *queues) is None
    assert wire("QNOTIFY", "other", 0, queues[7]) == queues[7].encode()


def test_an_event_wakes_all_listeners_in_every_group(bananaq: Daemon, queue: str) -> None:
    others = [queue + "-a", queue, queue + "-b"]
    wires = [notifier(bananaq, group, *others) for group in ("g", "g", "h")]
    bystander = notifier(bananaq, "g", queue + "-a")
    bananaq.ask("QADD", queue, 60, "body")
    assert [wire.read() for wire in wires] == [queue.encode()] * 3
    wait_for_consumers(bananaq, queue, "g", 0)
    assert consumers(bananaq, queue + "-b", "h") == 0
    bananaq.ask("QADD", queue + "-a", 60, "body")
    assert bystander.read() == (queue + "-a").encode()
    # A notification is not a delivery.
    assert bananaq.status(queue, "g")["available"] == 1


def test_an_expired_event_wakes_nobody(bananaq: Daemon, queue: str) -> None:
    wire = notifier(bananaq, "g", queue, seconds=3)
    blocked = taker(bananaq, queue, "g", seconds=3)
    bananaq.ask("QADD", queue, 0, "over")
    assert wire.read() is None
    assert blocked.read() is None


@pytest.mark.parametrize("command", ["QNOTIFY h 20 {q}", "QGET {q} h BLOCK 20"])
def test_a_missed_deadline_wakes_waiting_clients(bananaq: Daemon, queue: str, command: str) -> None:
    bananaq.ask("QADD", queue, 60, "body")
    before = now_us()
    first = Given(bananaq.ask("QGET", queue, "h", "EX", "0.5"))
    after = now_us()
    wire = bananaq.wire()
    reply = wire(*command.format(q=queue).split())
    woken = now_us()
    assert before + 500_000 <= woken <= after + 500_000 + LATE * 1e6
    if command.startswith("QGET"):
        again = Given(reply)
    else:
        assert reply == queue.encode()
        again = Given(wire("QGET", queue, "h"))
    assert (again.base, again.delivery) == (first.id, 2)


def test_missed_deadlines_are_noticed_even_if_nobody_waits(bananaq: Daemon, queue: str) -> None:
    for n in range(20):
        bananaq.ask("QADD", queue, 60, n)
    wire = bananaq.wire()
    held = [Given(wire("QGET", queue, "g", "EX", 60)) for _ in range(20)]
    for n, event in enumerate(held):
        assert wire("QWORKING", queue, "g", event.id, "EX", f"0.{10 + n}") == 1
    wait_until(lambda: bananaq.status(queue, "g")["redo"] == 20)
    again = [Given(wire("QGET", queue, "g")) for _ in range(20)]
    assert [event.base for event in again] == [event.id for event in held]
    assert wire("QGET", queue, "g") is None


@pytest.mark.parametrize("own", [False, True])
def test_redo_wakes_waiting_clients_of_the_group(bananaq: Daemon, queue: str, own: bool) -> None:
    wire = bananaq.wire()
    group = "okq" if own else "g"
    wire("QLPUSH", queue, "own", "body") if own else wire("QADD", queue, 60, "body")
    event = Given(wire("QGET", queue, group))
    told = notifier(bananaq, group, queue)
    assert wire(*(("QACK", queue, "own") if own else ("QACK", queue, group, event.id)), "REDO") == 1
    assert told.read() == queue.encode()
    assert Given(wire("QGET", queue, group)).delivery == 2


@pytest.mark.pure
def test_waiting_takers_are_served_in_the_order_of_their_arrival(
    bananaq: Daemon, queue: str
) -> None:
    wires = [taker(bananaq, queue, "g", "EX", "30") for _ in range(6)]
    listener = notifier(bananaq, "g", queue)
    producer = bananaq.wire()
    for n in range(5):
        producer("QADD", queue, 60, n)
        assert Given(wires[n].read()).body == b"%d" % n
    assert bananaq.status(queue, "g")["consumers"] == 2
    producer("QADD", queue, 60, 5)
    assert Given(wires[5].read()).body == b"5"
    # Listeners are only notified of events that nobody takes.
    producer("QADD", queue, 60, 6)
    assert listener.read() == queue.encode()


def test_the_deadline_of_a_taker_counts_from_the_delivery(bananaq: Daemon, queue: str) -> None:
    wire = taker(bananaq, queue, "g", "EX", "2")
    sent = time.monotonic()
    wait_until(lambda: time.monotonic() > sent + 2.1)
    bananaq.ask("QADD", queue, 60, "body")
    event = Given(wire.read())
    assert wire("QACK", queue, "g", event.id) == 1


def test_many_groups_get_every_event(bananaq: Daemon, queue: str) -> None:
    groups = [f"group-{n}" for n in range(40)]
    wires = [bananaq.wire() for _ in groups]
    for wire, group in zip(wires, groups, strict=True):
        for _ in range(5):
            wire.send("QGET", queue, group, "BLOCK", 20, "EX", 0)
    wait_until(lambda: all(consumers(bananaq, queue, group) for group in groups))
    producer = bananaq.wire()
    ids = [producer("QADD", queue, 60, n) for n in range(5)]
    for wire in wires:
        assert [Given(wire.read()).id for _ in range(5)] == ids


def test_commands_after_a_waiting_one_wait_too(bananaq: Daemon, queue: str) -> None:
    wire = taker(bananaq, queue, "g", "EX", "0")
    wire.send("QADD", queue, 60, "second")
    wire.send("QGET", queue, "g", "EX", 0)
    wire.send("PING")
    other = bananaq.wire()
    assert other("QGET", queue, "g") is None  # not added yet
    other("QADD", queue, 60, "first")
    assert Given(wire.read()).body == b"first"
    id = wire.read()
    second = Given(wire.read())
    assert (second.id, second.body) == (id, b"second")
    assert wire.read() == b"PONG"


@pytest.mark.parametrize("take", [False, True])
def test_a_waiting_client_can_be_unblocked(bananaq: Daemon, queue: str, take: bool) -> None:
    control = bananaq.wire()

    def wait() -> tuple[Wire, int]:
        wire = bananaq.wire()
        id = wire("CLIENT", "ID")
        assert isinstance(id, int)
        if take:
            wire.send("QGET", queue, "g", "BLOCK", 20)
        else:
            wire.send("QNOTIFY", "g", 20, queue)
        wait_for_consumers(bananaq, queue, "g", 1)
        return wire, id

    wire, id = wait()
    assert control("CLIENT", "UNBLOCK", id) == 1
    assert wire.read() is None
    assert control("CLIENT", "UNBLOCK", id) == 0
    wait_for_consumers(bananaq, queue, "g", 0)
    wire, id = wait()
    assert control("CLIENT", "UNBLOCK", id, "ERROR") == 1
    reply = wire.read()
    assert isinstance(reply, hiredis.ReplyError)
    assert str(reply).startswith("UNBLOCKED")
    wait_for_consumers(bananaq, queue, "g", 0)
    control("QADD", queue, 60, "body")
    assert Given(wire("QGET", queue, "g")).body == b"body"


def test_an_event_is_not_given_to_a_disconnected_client(bananaq: Daemon, queue: str) -> None:
    gone = [taker(bananaq, queue, "g") for _ in range(3)]
    gone.append(notifier(bananaq, "g", queue))
    there = taker(bananaq, queue, "g")
    for wire in gone:
        wire.close()
    wait_for_consumers(bananaq, queue, "g", 1)
    bananaq.ask("QADD", queue, 60, "body")
    assert Given(there.read()).delivery == 1
    assert consumers(bananaq, queue, "g") == 0


def test_clients_that_disconnect_while_events_arrive_lose_none(bananaq: Daemon, queue: str) -> None:
    """Their events are delivered again after the deadline, and no others are."""
    producer = bananaq.wire()
    stayer = bananaq.wire()
    got: list[Given] = []
    for n in range(40):
        leaver = bananaq.wire()
        leaver.send("QGET", queue, "g", "BLOCK", 20, "EX", "0.3")
        producer.send("QADD", queue, 60, n)
        leaver.close()
        producer.read()
    wait_for_consumers(bananaq, queue, "g", 0)
    while len(got) < 40:
        got.append(Given(stayer("QGET", queue, "g", "EX", 60, "BLOCK", 60)))
    assert sorted(int(event.body) for event in got) == list(range(40))
    assert bananaq.status(queue, "g")["inprogress"] == 40


def test_clients_that_wait_during_a_flush_get_the_next_event(bananaq: Daemon, queue: str) -> None:
    wire = taker(bananaq, queue, "g")
    bananaq.ask("QFLUSH", queue)
    assert consumers(bananaq, queue, "g") == 1
    bananaq.ask("QADD", queue, 60, "body")
    assert Given(wire.read()).body == b"body"


def test_a_waiting_client_is_listed_with_its_queue_even_if_that_is_empty(
    bananaq: Daemon, queue: str
) -> None:
    wire = notifier(bananaq, "g", queue)
    every = bananaq.ask("QSTATUS")
    assert isinstance(every, list)
    row = next(row for row in every if row[0] == queue.encode())
    assert row[1] == [
        b"g",
        [
            b"total", 0, b"inprogress", 0, b"redo", 0,
            b"done", 0, b"available", 0, b"consumers", 1,
        ],
    ]  # fmt: skip
    wire.close()

    def is_listed() -> bool:
        every = bananaq.ask("QSTATUS")
        assert isinstance(every, list)
        return queue.encode() in [row[0] for row in every]

    wait_until(lambda: not is_listed())


def test_a_pause_holds_commands_and_waiting_clients_alike(
    run_bananaq: DaemonFactory, kind: str, queue: str
) -> None:
    daemon = run_bananaq(kind)
    wire = taker(daemon, queue, "g")
    control, producer = daemon.wire(), daemon.wire()
    started = time.monotonic()
    assert control("CLIENT", "PAUSE", 400) == b"OK"
    id = producer("QADD", queue, 60, "body")
    assert time.monotonic() - started >= 0.39
    assert Given(wire.read()).id == id
    assert control("CLIENT", "PAUSE", 20000) == b"OK"
    producer.send("QADD", queue, 60, "body")
    assert control("CLIENT", "UNPAUSE") == b"OK"
    assert isinstance(producer.read(), bytes)
    assert waiting(daemon) == 0
