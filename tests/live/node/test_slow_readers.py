"""Clients that do not read are dropped at their limits, without an effect on others."""

import time

import pytest

from tests.support.harness import LiveNode, NodeFactory, Wire, wait_until
from tests.support.live_helpers import add_job, client_lines, info_value, packed, receive_all

MB = 1024 * 1024


def ask_without_reading(node: LiveNode, count: int) -> Wire:
    """Return a client that has asked for ``count`` MB and reads none of it."""
    wire = node.wire()
    if wire("QLEN", "big") == 0:
        add_job(wire, "big", b"x" * MB)
    wire.raw(packed("QPEEK", "big", 1) * count)
    return wire


def unsent(control: Wire) -> int:
    return max(int(line["omem"]) for line in client_lines(control))


def test_beyond_the_hard_limit_a_slow_reader_is_dropped_at_once(disque_server: NodeFactory) -> None:
    node = disque_server("--client-output-buffer-limit", "normal 20mb 0 0")
    control = node.wire()
    slow = ask_without_reading(node, 10)
    wait_until(lambda: unsent(control) > 2 * MB)
    slow.raw(packed("QPEEK", "big", 1) * 40)
    wait_until(lambda: len(client_lines(control)) == 1)
    assert slow.closed()
    assert control("PING") == b"PONG"


def test_beyond_the_soft_limit_a_slow_reader_has_some_time(disque_server: NodeFactory) -> None:
    node = disque_server("--client-output-buffer-limit", "normal 0 5mb 1")
    control = node.wire()
    started = time.monotonic()
    ask_without_reading(node, 30)
    wait_until(lambda: unsent(control) > 5 * MB)
    wait_until(lambda: len(client_lines(control)) == 1)
    assert time.monotonic() - started >= 1


def test_a_reader_that_gets_below_the_soft_limit_in_time_stays(disque_server: NodeFactory) -> None:
    node = disque_server("--client-output-buffer-limit", "normal 0 5mb 4")
    control = node.wire()
    slow = ask_without_reading(node, 30)
    wait_until(lambda: unsent(control) > 5 * MB)
    for _ in range(30):
        slow.read()
    assert unsent(control) == 0
    assert control("GETJOB", "TIMEOUT", 4500, "FROM", "q") is None
    assert slow("PING") == b"PONG"


@pytest.mark.pure
def test_one_turn_cannot_pile_up_more_than_the_limit_and_one_reply(
    disque_server: NodeFactory,
) -> None:
    node = disque_server("--client-output-buffer-limit", "normal 10mb 0 0")
    control = node.wire()
    add_job(control, "big", b"x" * (16 * MB))
    before = info_value(node, "memory", "used_memory_rss")
    wire = node.wire()
    wire.raw(packed("QPEEK", "big", 1) * 60)  # a gigabyte, asked for at once
    assert wire.closed()
    assert peak_memory(node) - before < 200 * MB


def peak_memory(node: LiveNode) -> int:
    """Return the peak memory of the process in bytes."""
    with open(f"/proc/{node.process.pid}/status") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")


def test_a_monitor_that_does_not_read_is_dropped(disque_server: NodeFactory) -> None:
    node = disque_server("--client-output-buffer-limit", "normal 10mb 0 0")
    watching, wire = node.wire(), node.wire()
    watching("MONITOR")
    for _ in range(20):
        assert wire("ECHO", b"x" * MB) is not None
    assert len(client_lines(wire)) == 1
    assert watching.closed()


def test_others_are_served_and_memory_goes_back_when_a_slow_reader_leaves(node: LiveNode) -> None:
    wire = node.wire()
    before = info_value(node, "memory", "used_memory_rss")
    slow = ask_without_reading(node, 200)
    wait_until(lambda: unsent(wire) > 150 * MB)
    for _ in range(50):
        add_job(wire)
        assert wire("GETJOB", "FROM", "q")
    slow.close()
    wait_until(lambda: len(client_lines(wire)) == 1)
    wait_until(lambda: info_value(node, "memory", "used_memory_rss") < before + 60 * MB)


@pytest.mark.pure
def test_a_slow_reader_gets_all_its_replies_in_the_end(node: LiveNode) -> None:
    slow = ask_without_reading(node, 50)
    control = node.wire()
    wait_until(lambda: unsent(control) > 30 * MB)
    for _ in range(50):
        jobs = slow.read()
        assert isinstance(jobs, list)
        assert len(jobs[0][2]) == MB
    assert unsent(control) == 0


def test_a_client_that_quits_gets_what_it_asked_for_first(node: LiveNode) -> None:
    slow = ask_without_reading(node, 30)
    control = node.wire()
    wait_until(lambda: unsent(control) > 20 * MB)
    slow.raw(packed("QUIT") + packed("ADDJOB", "never", "x", 0))
    answer = receive_all(slow.sock)
    assert len(answer) > 30 * MB
    assert answer.endswith(b"+OK\r\n")
    assert control("QLEN", "never") == 0


def test_a_client_that_takes_long_to_read_a_reply_is_not_idle(
    disque_server: NodeFactory,
) -> None:
    node = disque_server("--timeout", "3", "--hz", "100")
    slow = ask_without_reading(node, 20)
    started = time.monotonic()
    for _ in range(20):
        assert isinstance(slow.read(), list)
        pause(0.2)
    assert time.monotonic() - started > 3.5
    assert slow("PING") == b"PONG"


def pause(seconds: float) -> None:
    """Read slowly."""
    until = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() > until)


@pytest.mark.load  # how long others wait is the question
def test_a_crowd_of_pipelining_clients_lets_new_ones_in(node: LiveNode) -> None:
    crowd = [node.wire() for _ in range(40)]
    for wire in crowd:
        wire("CLIENT", "REPLY", "ON")
        wire.send("CLIENT", "REPLY", "OFF")
        wire.sock.setblocking(False)
    work = packed("PING") * 5000
    worst = 0.0
    until = time.monotonic() + 1.5
    while time.monotonic() < until:
        for wire in crowd:
            try:
                wire.sock.send(work)
            except BlockingIOError:
                pass
        started = time.monotonic()
        new = node.wire()
        assert new("PING") == b"PONG"
        worst = max(worst, time.monotonic() - started)
        new.close()
    assert worst < 5.0
