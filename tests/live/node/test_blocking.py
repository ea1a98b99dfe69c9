"""Clients blocked in GETJOB: who is served when, and what becomes of requests sent after it."""

import socket
import struct
import time

import pytest

from tests.support.harness import HANG_SECONDS, LiveNode, Wire, wait_until
from tests.support.live_helpers import add_job, info_value, packed, pairs, receive_all

TOLERANCE = 0.003  # s; the node counts whole milliseconds
LATE = 10.0  # s


def blocked(node: LiveNode) -> int:
    return info_value(node, "clients", "blocked_clients")


def block(node: LiveNode, *queues: str, timeout: int = 0) -> Wire:
    """Return a new client that the node has blocked in GETJOB."""
    before = blocked(node)
    wire = node.wire()
    wire.send("GETJOB", "TIMEOUT", timeout, "FROM", *queues)
    wait_until(lambda: blocked(node) > before)
    return wire


def die(wire: Wire) -> None:
    """Reset the connection, as after a crash of its machine."""
    wire.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wire.close()


@pytest.mark.pure
def test_a_thousand_waiting_clients_are_served_first_come_first_served(
    shared_node: LiveNode,
) -> None:
    producer = shared_node.wire()
    waiting = []
    for _ in range(1000):
        wire = shared_node.wire()
        assert wire("PING") == b"PONG"  # settles the order of connecting
        waiting.append(wire)
    for wire in waiting:
        wire.send("GETJOB", "FROM", "q")
        producer("PING")  # one turn of the node each, to settle the order of waiting
    wait_until(lambda: blocked(shared_node) == 1000)
    for number in range(1000):
        producer.send("ADDJOB", "q", str(number), 0)
    for _ in range(1000):
        assert isinstance(producer.read(), bytes)
    for number, wire in enumerate(waiting):
        jobs = wire.read()
        assert isinstance(jobs, list)
        assert jobs[0][2] == str(number).encode()
    assert blocked(shared_node) == 0


def test_a_client_may_wait_for_many_queues(shared_node: LiveNode) -> None:
    producer = shared_node.wire()
    queues = [f"q{number}" for number in range(1000)]
    wire = block(shared_node, *queues)
    add_job(producer, "q777", "found")
    jobs = wire.read()
    assert isinstance(jobs, list)
    assert jobs[0][0] == b"q777"
    add_job(producer, "q5")
    assert producer("QLEN", "q5") == 1
    assert pairs(producer("QSTAT", "q0"))["blocked"] == 0


def test_a_queue_named_twice_gives_one_job(shared_node: LiveNode) -> None:
    wire = block(shared_node, "q", "q")
    producer = shared_node.wire()
    add_job(producer)
    add_job(producer)
    jobs = wire.read()
    assert isinstance(jobs, list)
    assert len(jobs) == 1
    assert producer("QLEN", "q") == 1


def test_a_waiting_client_gets_one_job_whatever_count_it_asked_for(shared_node: LiveNode) -> None:
    wire, producer = shared_node.wire(), shared_node.wire()
    wire.send("GETJOB", "COUNT", 10, "WITHCOUNTERS", "FROM", "q")
    wait_until(lambda: blocked(shared_node))
    producer.raw(packed("ADDJOB", "q", "a", 0) + packed("ADDJOB", "q", "b", 0))
    jobs = wire.read()
    assert isinstance(jobs, list)
    assert len(jobs) == 1
    assert jobs[0][3:] == [b"nacks", 0, b"additional-deliveries", 0]


@pytest.mark.load  # when it ends is the question
@pytest.mark.parametrize("timeout", [1, 50, 333])
def test_a_wait_ends_at_its_timeout_and_not_before(talk: Wire, timeout: int) -> None:
    for _ in range(3):
        started = time.monotonic()
        assert talk("GETJOB", "TIMEOUT", timeout, "FROM", "q") is None
        took = time.monotonic() - started
        assert timeout / 1000 - TOLERANCE <= took < timeout / 1000 + LATE


def test_many_waits_end_each_at_its_own_timeout(shared_node: LiveNode) -> None:
    wires = [shared_node.wire() for _ in range(100)]
    started = time.monotonic()
    for number, wire in enumerate(wires):
        wire.send("GETJOB", "TIMEOUT", 500 - 4 * number, "FROM", "q")
    for number, wire in reversed(list(enumerate(wires))):
        assert wire.read() is None
        assert time.monotonic() - started >= (500 - 4 * number) / 1000 - TOLERANCE
    assert blocked(shared_node) == 0


def test_a_timeout_may_be_far_in_the_future(shared_node: LiveNode) -> None:
    wire = block(shared_node, "q", timeout=2**63 - 1)
    assert add_job(shared_node.wire())
    assert wire.read()


@pytest.mark.pure
def test_commands_behind_a_blocking_getjob_are_served_after_it_in_order(
    shared_node: LiveNode,
) -> None:
    wire, producer = shared_node.wire(), shared_node.wire()
    requests = [packed("GETJOB", "FROM", "q")]
    requests += [packed("ECHO", number) for number in range(300)]
    requests.append(packed("GETJOB", "FROM", "q"))
    requests.append(packed("ECHO", "end"))
    wire.raw(b"".join(requests))
    wait_until(lambda: blocked(shared_node))
    wire.send("ECHO", "sent later")
    first = add_job(producer, "q", "first")
    assert wire.read() == [[b"q", first.encode(), b"first"]]
    assert [wire.read() for _ in range(300)] == [b"%d" % number for number in range(300)]
    wait_until(lambda: blocked(shared_node))
    second = add_job(producer, "q", "second")
    assert wire.read() == [[b"q", second.encode(), b"second"]]
    assert wire.read() == b"end"
    assert wire.read() == b"sent later"


def test_a_waiting_client_may_send_megabytes_behind_it(shared_node: LiveNode) -> None:
    wire, producer = shared_node.wire(), shared_node.wire()
    wire.send("GETJOB", "FROM", "q")
    wire.sock.settimeout(0.5)
    body = b"x" * 100_000
    sent = 0
    try:
        while sent < 1000:
            wire.send("ECHO", body)
            sent += 1
    except TimeoutError:  # the node stops reading: it holds about a megabyte
        pass
    assert sent < 200
    held = pairs_of_client(producer, wire)["qbuf"]
    assert int(held) < 3_000_000
    add_job(producer)
    wire.sock.settimeout(HANG_SECONDS)
    assert isinstance(wire.read(), list)
    for _ in range(sent):
        assert wire.read() == body


def pairs_of_client(control: Wire, wire: Wire) -> dict[str, str]:
    host, port = wire.sock.getsockname()
    text = control("CLIENT", "LIST")
    assert isinstance(text, bytes)
    line = next(line for line in text.decode().splitlines() if f"addr={host}:{port} " in line)
    return dict(field.split("=", 1) for field in line.split(" "))


@pytest.mark.pure
def test_a_protocol_error_behind_a_wait_is_reported_after_it(shared_node: LiveNode) -> None:
    wire, producer = shared_node.wire(), shared_node.wire()
    wire.raw(packed("GETJOB", "FROM", "q") + b"*1\r\nnonsense\r\n")
    wait_until(lambda: blocked(shared_node))
    id = add_job(producer)
    assert wire.read() == [[b"q", id.encode(), b"body"]]
    assert str(wire.read()) == "ERR Protocol error: expected '$', got 'n'"
    assert wire.closed()


@pytest.mark.parametrize("how", ["reset", "close"])
def test_a_job_for_a_client_that_died_waiting_goes_to_the_next(
    shared_node: LiveNode, how: str
) -> None:
    first, second = block(shared_node, "q"), block(shared_node, "q")
    if how == "reset":
        die(first)
    else:
        first.close()
    wait_until(lambda: blocked(shared_node) == 1)
    id = add_job(shared_node.wire())
    assert second.read() == [[b"q", id.encode(), b"body"]]


def test_a_job_stays_queued_when_all_waiting_clients_died(shared_node: LiveNode) -> None:
    wires = [block(shared_node, "q", "other") for _ in range(5)]
    for wire in wires:
        die(wire)
    wait_until(lambda: blocked(shared_node) == 0)
    control = shared_node.wire()
    add_job(control)
    assert control("QLEN", "q") == 1
    assert pairs(control("QSTAT", "q"))["blocked"] == 0


def test_a_client_that_closes_in_the_middle_of_a_command_does_nothing(
    shared_node: LiveNode,
) -> None:
    whole = packed("ADDJOB", "q", "body", 0)
    control = shared_node.wire()
    before = info_value(shared_node, "clients", "connected_clients")
    for cut in range(1, len(whole)):
        wire = shared_node.wire()
        wire.raw(whole[:cut])
        if cut % 2:
            die(wire)
        else:
            wire.close()
    wait_until(lambda: info_value(shared_node, "clients", "connected_clients") <= before)
    assert control("QLEN", "q") == 0


def test_replies_reach_a_client_that_has_closed_its_half(shared_node: LiveNode) -> None:
    wire = shared_node.wire()
    wire.raw(packed("ADDJOB", "q", "x" * 1000, 0) * 500 + packed("QLEN", "q"))
    wire.sock.shutdown(socket.SHUT_WR)
    answer = receive_all(wire.sock)
    assert answer.count(b"\r\n") == 501
    assert answer.endswith(b":500\r\n")


@pytest.mark.parametrize("count", [1, 64, 65, 100, 129, 5000])
def test_all_replies_of_a_pipeline_reach_a_client_that_has_closed_its_half(
    shared_node: LiveNode, count: int
) -> None:
    for _ in range(10):
        wire = shared_node.wire()
        wire.raw(packed("PING") * count)
        wire.sock.shutdown(socket.SHUT_WR)
        assert receive_all(wire.sock) == b"+PONG\r\n" * count


@pytest.mark.pure
def test_big_replies_reach_a_client_that_has_closed_its_half(shared_node: LiveNode) -> None:
    wire = shared_node.wire()
    add_job(wire, "q", b"x" * 8_000_000)
    wire.raw(packed("QPEEK", "q", 1))
    wire.sock.shutdown(socket.SHUT_WR)
    answer = receive_all(wire.sock)
    assert len(answer) > 8_000_000


@pytest.mark.pure
def test_requests_may_come_byte_by_byte(shared_node: LiveNode) -> None:
    wire = shared_node.wire()
    wire.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    requests = packed("ADDJOB", "q", b"\r\n\0", 0) + b"QLEN q\r\n" + packed("QPEEK", "q", 1)
    for byte in requests:
        wire.raw(bytes([byte]))
    assert isinstance(wire.read(), bytes)
    assert wire.read() == 1
    jobs = wire.read()
    assert isinstance(jobs, list)
    assert jobs[0][2] == b"\r\n\0"


def test_a_slow_sender_delays_nobody_else(shared_node: LiveNode) -> None:
    slow, wire = shared_node.wire(), shared_node.wire()
    slow.raw(b"*3\r\n$6\r\nADDJOB\r\n$1\r\nq\r\n$100000")
    for _ in range(100):
        assert wire("PING") == b"PONG"
