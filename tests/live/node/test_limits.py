"""What a client may make the node hold, and the errors beyond those limits."""

import random
import socket

import pytest

from tests.support.harness import HANG_SECONDS, LiveNode, NodeFactory, Wire, wait_until
from tests.support.live_helpers import (
    ANY_ID,
    add_job,
    client_lines,
    exchange,
    info_value,
    packed,
    receive_all,
)

MB = 1024 * 1024


def last_words(node: LiveNode, data: bytes) -> bytes:
    """Send ``data`` on a new connection; return what arrives until the node closes it."""
    with socket.create_connection((node.host, node.port), timeout=HANG_SECONDS) as sock:
        try:
            sock.sendall(data)
        except (ConnectionResetError, BrokenPipeError):
            pass  # the node closed before it had all
        return receive_all(sock)


# ---- connections ------------------------------------------------------------------------------


def alone(node: LiveNode) -> Wire:
    """Return the only connection to ``node``, once those of the start probe are gone."""
    wire = node.wire()
    wait_until(lambda: len(client_lines(wire)) == 1)
    return wire


def test_one_client_too_many_is_refused_with_a_reason(disque_server: NodeFactory) -> None:
    node = disque_server("--maxclients", "5")
    wires = [alone(node)]
    wires += [node.wire() for _ in range(4)]
    for wire in wires:
        assert wire("PING") == b"PONG"
    for _ in range(3):
        refused = node.wire()
        assert receive_all(refused.sock) == b"-ERR max number of clients reached\r\n"
    for wire in wires:
        assert wire("PING") == b"PONG"
    stats = wires[0]("INFO", "stats")
    assert isinstance(stats, bytes)
    assert b"rejected_connections:3\r\n" in stats
    wires.pop().close()
    wait_until(lambda: len(client_lines(wires[0])) == 4)
    assert node.wire()("PING") == b"PONG"


def test_one_address_has_a_limit_of_its_own(disque_server: NodeFactory) -> None:
    node = disque_server("--maxclients-per-ip", "2", "--unixsocket", "socket")
    first = alone(node)
    second = node.wire()
    assert second("PING") == b"PONG"
    refused = node.wire()
    assert receive_all(refused.sock) == b"-ERR max number of clients of one address reached\r\n"
    stats = first("INFO", "stats")
    assert isinstance(stats, bytes)
    assert b"rejected_connections:1\r\n" in stats
    with socket.socket(socket.AF_UNIX) as beside:
        beside.settimeout(HANG_SECONDS)
        beside.connect(str(node.directory / "socket"))
        beside.sendall(b"PING\r\n")
        assert beside.recv(100) == b"+PONG\r\n"
    second.close()
    wait_until(lambda: len(client_lines(first)) == 1)
    third = node.wire()
    assert third("PING") == b"PONG"
    assert first("CONFIG", "SET", "maxclients-per-ip", "3") == b"OK"
    assert node.wire()("PING") == b"PONG"
    assert first("CONFIG", "SET", "maxclients-per-ip", "1") == b"OK"
    assert third("PING") == b"PONG"
    assert receive_all(node.wire().sock).startswith(b"-ERR max number of clients of one address")
    assert first("CONFIG", "SET", "maxclients-per-ip", "0") == b"OK"
    assert node.wire()("PING") == b"PONG"


def test_maxclients_can_be_lowered_and_raised_at_runtime(disque_server: NodeFactory) -> None:
    node = disque_server("--maxclients", "3")
    wire = alone(node)
    other = node.wire()
    other("PING")
    assert wire("CONFIG", "SET", "maxclients", 1) == b"OK"
    assert other("PING") == b"PONG"
    assert receive_all(node.wire().sock).startswith(b"-ERR max")
    assert wire("CONFIG", "SET", "maxclients", 10) == b"OK"
    assert node.wire()("PING") == b"PONG"


def test_idle_clients_are_dropped_but_not_those_that_wait_or_watch(
    disque_server: NodeFactory,
) -> None:
    node = disque_server("--timeout", "3", "--hz", "50")
    idle, blocked, watching = node.wire(), node.wire(), node.wire()
    idle("PING")
    watching("MONITOR")
    blocked.send("GETJOB", "FROM", "q")
    assert idle.closed()
    # Meanwhile both others are idle for more than twice their timeout.
    assert node.wire()("GETJOB", "TIMEOUT", 3500, "FROM", "other") is None
    control = node.wire()
    id = add_job(control)
    assert blocked.read() == [[b"q", id.encode(), b"body"]]
    # Once served it no longer counts as idle: it has the full timeout to work.
    assert control("GETJOB", "TIMEOUT", 300, "FROM", "other") is None
    assert blocked("ACKJOB", id) == 1
    assert isinstance(watching.read(), bytes)


# ---- requests ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b'PING "abc\r\n', "unbalanced quotes in request"),
        (b"PING 'a'b\r\n", "unbalanced quotes in request"),
        (b"*x\r\n", "invalid multibulk length"),
        (b"*1048577\r\n", "invalid multibulk length"),
        (b"*99999999999999999999\r\n", "invalid multibulk length"),
        (b"*1 \r\n", "invalid multibulk length"),
        (b"*1\r\n:1\r\n", "expected '$', got ':'"),
        (b"*1\r\n*1\r\n$4\r\nPING\r\n", "expected '$', got '*'"),
        (b"*1\r\n\xff\r\n", "expected '$', got '"),
        (b"*1\r\n$x\r\n", "invalid bulk length"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$536870913\r\n", "invalid bulk length"),
        (b"*1\r\n$99999999999999999999\r\n", "invalid bulk length"),
        (b"x" * 70_000, "too big inline request"),
        (b"x" * 70_000 + b"\r\n", "too big inline request"),
        (b"*" + b"1" * 70_000, "too big mbulk count string"),
        (b"*1\r\n$" + b"1" * 70_000, "too big bulk count string"),
    ],
)
def test_a_protocol_error_is_reported_and_ends_the_connection(
    shared_node: LiveNode, data: bytes, problem: str
) -> None:
    answer = last_words(shared_node, data)
    assert answer.startswith(b"-ERR Protocol error: " + problem.encode())
    assert answer.count(b"\r\n") == 1
    assert shared_node.wire()("PING") == b"PONG"


def test_requests_before_broken_ones_are_served(shared_node: LiveNode) -> None:
    for good in (packed("ADDJOB", "q", "b", 0), b"ADDJOB q b 0\r\n"):
        answer = last_words(shared_node, good * 200 + b"*x\r\n" + good)
        assert answer.count(b"\r\n") == 201
        assert answer.endswith(b"-ERR Protocol error: invalid multibulk length\r\n")
    assert shared_node.wire()("QLEN", "q") == 400


def test_empty_requests_are_ignored(shared_node: LiveNode) -> None:
    data = b"\r\n\n   \r\n*0\r\n*-1\r\n" + b"PING\r\n" + b"*0\r\n"
    assert exchange(shared_node, data) == b"+PONG\r\n"
    assert exchange(shared_node, b"PING\n" + packed("PING")) == b"+PONG\r\n" * 2


def test_inline_requests_are_quoted_as_redis_cli_does(shared_node: LiveNode) -> None:
    answer = exchange(shared_node, rb'echo "a\x00\n\"b\"" ' + b"\r\n" + rb"ECHO 'it\'s'" + b"\r\n")
    assert answer == b'$6\r\na\0\n"b"\r\n$4\r\nit\'s\r\n'


def test_lengths_right_at_the_limit_are_taken(shared_node: LiveNode) -> None:
    wire = shared_node.wire()
    body = b"x" * (65536 - len(b"ECHO \r"))
    wire.raw(b"ECHO " + body + b"\r\n")
    assert wire.read() == body
    # 512 MB are announced and never sent.
    silent = shared_node.wire()
    silent.raw(b"*1048576\r\n$536870912\r\n")
    assert wire("PING") == b"PONG"
    assert info_value(shared_node, "clients", "connected_clients") >= 2
    silent.sock.setblocking(False)
    with pytest.raises(BlockingIOError):
        silent.sock.recv(1)


def test_an_announced_length_takes_no_memory(shared_node: LiveNode) -> None:
    before = info_value(shared_node, "memory", "used_memory_rss")
    for _ in range(200):
        shared_node.wire().raw(b"*1048576\r\n$536870912\r\nx")
    assert shared_node.wire()("PING") == b"PONG"
    assert info_value(shared_node, "memory", "used_memory_rss") - before < 20 * MB


def test_a_job_may_be_64_megabytes(shared_node: LiveNode) -> None:
    wire = shared_node.wire()
    body = random.Random(1).randbytes(64 * MB)
    id = add_job(wire, "q", body)
    jobs = wire("GETJOB", "FROM", "q")
    assert isinstance(jobs, list)
    assert jobs[0][2] == body
    assert wire("ACKJOB", id) == 1


@pytest.mark.parametrize(("id", "answer"), [("x", b"-BADID "), (ANY_ID, b":0\r\n")])
def test_a_million_arguments_are_taken(shared_node: LiveNode, id: str, answer: bytes) -> None:
    argument = b"$%d\r\n%b\r\n" % (len(id), id.encode())
    count = 1024 * 1024 if id == "x" else 200_000
    request = b"*%d\r\n$6\r\nACKJOB\r\n" % count + argument * (count - 1)
    assert exchange(shared_node, request).startswith(answer)


def test_other_clients_are_served_while_many_ids_are_processed(shared_node: LiveNode) -> None:
    other = shared_node.wire()
    wire = shared_node.wire()
    wire.send("CLIENT", "SETNAME", "many")
    wire.send("ACKJOB", *[ANY_ID] * 200_000)
    wire.send("ECHO", "behind")
    wait_until(lambda: {("many", "ackjob")} & {(c["name"], c["cmd"]) for c in client_lines(other)})
    assert [wire.read() for _ in range(3)] == [b"OK", 0, b"behind"]
    # Requests of a client that is gone still count.
    id = add_job(other, "q")
    wire.send("ACKJOB", *[ANY_ID] * 20_000, id)
    wire.close()
    wait_until(lambda: other("SHOW", id) is None)


def test_an_argument_longer_than_allowed_is_refused(disque_server: NodeFactory) -> None:
    node = disque_server("--proto-max-bulk-len", "1mb", "--proto-inline-max-size", "2kb")
    wire = node.wire()
    add_job(wire, "q", b"x" * MB)
    for data in (b"*1\r\n$%d\r\n" % (MB + 1), packed("PING", b"x" * (MB + 1))):
        assert last_words(node, data) == b"-ERR Protocol error: invalid bulk length\r\n"
    assert b"too big inline" in last_words(node, b"PING " + b"x" * 2048 + b"\r\n")


def test_limits_set_at_runtime_hold_for_connected_clients(node: LiveNode) -> None:
    control, wire = node.wire(), node.wire()
    wire("PING")
    control("CONFIG", "SET", "proto-max-bulk-len", "1mb")
    wire.raw(b"*1\r\n$%d\r\n" % (MB + 1))
    assert str(wire.read()) == "ERR Protocol error: invalid bulk length"


def test_a_request_that_grows_beyond_the_query_buffer_is_refused(
    disque_server: NodeFactory,
) -> None:
    node = disque_server("--client-query-buffer-limit", "1mb")
    argument = b"$100000\r\n" + b"x" * 100_000 + b"\r\n"
    answer = last_words(node, b"*20\r\n" + argument * 20)
    assert answer == b"-ERR Protocol error: too big query buffer\r\n"
    wire = node.wire()
    wire.raw(b"*9\r\n$6\r\nACKJOB\r\n" + argument * 8)
    assert str(wire.read()).startswith("BADID")


@pytest.mark.parametrize("name", [b"", b"\0", b"\xff\xfe", b"a\r\nb", b"x" * 5000, b"\x80" * 300])
def test_any_bytes_may_be_the_name_of_an_unknown_command(talk: Wire, name: bytes) -> None:
    # Read raw, since not everything that a client may write is text.
    talk.raw(packed(name, b"\0\r\n"))
    talk.raw(packed("PING"))
    answer = b""
    while not answer.endswith(b"+PONG\r\n"):
        answer += talk.sock.recv(65536)
    shown = name[:128].replace(b"\r", b" ").replace(b"\n", b" ")
    assert answer == b"-ERR unknown command '" + shown + b"'\r\n+PONG\r\n"


def test_the_clients_that_use_most_memory_are_dropped(disque_server: NodeFactory) -> None:
    node = disque_server("--maxmemory", "100mb")
    control = node.wire()
    assert control("CLIENT", "NO-EVICT", "ON") == b"OK"
    assert control("CONFIG", "SET", "maxmemory-clients", "5%") == b"OK"
    assert control("CONFIG", "GET", "maxmemory-clients") == [b"maxmemory-clients", b"5%"]
    half = b"*4\r\n$6\r\nADDJOB\r\n$1\r\nq\r\n$%d\r\n" % (10 * MB)
    wires = [node.wire() for _ in range(3)]
    for number, wire in enumerate(wires, 1):
        wire.raw(half + bytes(number * MB))
    assert wires[2].closed()
    wait_until(lambda: info_value(node, "memory", "mem_clients_normal") > 3 * MB)
    assert info_value(node, "stats", "evicted_clients") == 1
    held = {int(line["tot-mem"]) // MB for line in client_lines(control)}
    assert held == {0, 1, 2}
    assert node.wire()("PING") == b"PONG"
