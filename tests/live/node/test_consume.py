"""Jobs that are pushed over real connections."""

import os
import signal
import subprocess
from typing import Any

import hiredis
import pytest

from tests.support.commands import start_command
from tests.support.harness import ClusterFactory, LiveNode, NodeFactory, Wire, wait_until
from tests.support.live_helpers import client_lines, info_value

WORKER = """
import socket, sys
sock = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
sock.sendall(b"HELLO 3\\r\\nCONSUME q CREDIT 5\\r\\n")
while True:
    sys.stdout.buffer.write(sock.recv(65536))
    sys.stdout.buffer.flush()
"""


def consumer(node: LiveNode, *words: str | int) -> Wire:
    """Return a connection that consumes q, or what ``words`` say."""
    wire = node.wire()
    wire("HELLO", 3)
    assert wire("CONSUME", *(words or ("q", "CREDIT", 10))) == b"OK"
    return wire


def pushed(wire: Wire) -> list[Any]:
    """Return the next message, which must be a pushed job."""
    message = wire.read()
    assert isinstance(message, hiredis.PushNotification)
    assert message[0] == b"job"
    return [*message[1:]]


def in_hand(node: LiveNode) -> int:
    return info_value(node, "clients", "jobs_pushed_in_hand")


@pytest.mark.pure
def test_jobs_are_pushed_while_other_commands_are_served(shared_node: LiveNode) -> None:
    worker = consumer(shared_node, "q", "CREDIT", 1, "WITHHEADERS")
    first = shared_node.ask("ADDJOB", "q", "one", 0, "HEADERS", 1, "n", "v")
    second = shared_node.ask("ADDJOB", "q", "two", 0)
    assert pushed(worker) == [b"q", first, b"one", b"headers", [b"n", b"v"]]
    assert worker("PING") == b"PONG"
    assert worker("WORKING", first) == 300
    assert worker("ACKJOB", first) == 1
    assert pushed(worker) == [b"q", second, b"two", b"headers", []]
    assert worker("NACK", second) == 1
    assert pushed(worker)[1] == second
    assert worker("FASTACK", second) == 1
    assert in_hand(shared_node) == 0


def test_a_worker_that_is_killed_loses_its_jobs_at_once(shared_node: LiveNode) -> None:
    ids = {shared_node.ask("ADDJOB", "q", "b", 0, "RETRY", 3600) for _ in range(5)}
    streams = {"stdout": subprocess.PIPE}
    with start_command("python -c", WORKER, str(shared_node.port), **streams) as worker:
        try:
            wait_until(lambda: in_hand(shared_node) == 5)
        finally:
            os.kill(worker.pid, signal.SIGKILL)
    other = consumer(shared_node)
    assert {pushed(other)[1] for _ in range(5)} == ids
    assert other("ACKJOB", *ids) == 5


def test_ten_thousand_jobs_are_all_pushed_once(shared_node: LiveNode) -> None:
    workers = [consumer(shared_node, "q", "CREDIT", 100) for _ in range(5)]
    producer = shared_node.wire()
    producer.raw(b"ADDJOB q body 0\r\n" * 10_000)
    ids = [producer.read() for _ in range(10_000)]
    got: list[bytes] = []
    while len(got) < len(ids):
        for worker in workers:
            # Those pushed before the reply to its PING.
            worker.send("PING")
            while (message := worker.read()) != b"PONG":
                if isinstance(message, hiredis.PushNotification):
                    got.append(message[2])
                    worker.send("ACKJOB", message[2])
    assert sorted(got) == sorted(ids)  # type: ignore[type-var]
    wait_until(lambda: in_hand(shared_node) == 0)


def test_a_worker_that_does_not_read_delays_nobody_else(shared_node: LiveNode) -> None:
    idle = consumer(shared_node, "q", "CREDIT", 60_000)
    producer = shared_node.wire()
    body = "x" * 100_000
    for _ in range(400):  # 40 MB
        producer.send("ADDJOB", "q", body, 0)
    for _ in range(400):
        producer.read()
    assert in_hand(shared_node) * len(body) <= 17 << 20
    assert isinstance(producer("GETJOB", "FROM", "q"), list)
    idle.close()
    wait_until(lambda: in_hand(shared_node) == 0)
    wait_until(lambda: shared_node.ask("QLEN", "q") == 399)
    shared_node.ask("DEBUG", "FLUSHALL")


def test_a_worker_that_does_not_read_stops_getting_its_jobs(shared_node: LiveNode) -> None:
    stuck = consumer(shared_node, "q", "CREDIT", 5)
    control = shared_node.wire()
    id = control("ADDJOB", "q", "x" * 9_000_000, 0, "RETRY", 1)
    wait_until(lambda: shared_node.ask("QLEN", "q") == 1)
    assert max(int(line["omem"]) for line in client_lines(control)) < 40_000_000
    assert control("GETJOB", "FROM", "q")[0][1] == id
    assert control("ACKJOB", id) == 1
    second = control("ADDJOB", "q", "b", 0)
    while (job := pushed(stuck))[1] == id:
        pass
    assert job[1] == second
    assert stuck("ACKJOB", second) == 1


def test_a_silent_consumer_is_not_disconnected(disque_server: NodeFactory) -> None:
    node = disque_server("--timeout", "1")
    worker = consumer(node)
    assert node.wire().closed()
    id = node.ask("ADDJOB", "q", "b", 0)
    assert pushed(worker)[1] == id


def test_jobs_come_again_when_the_node_was_killed(disque_server: NodeFactory) -> None:
    node = disque_server("--appendonly", "yes")
    worker = consumer(node, "q", "once", "CREDIT", 2)
    id = node.ask("ADDJOB", "q", "b", 0, "RETRY", 1)
    once = node.ask("ADDJOB", "once", "b", 0, "RETRY", 0, "REPLICATE", 1)
    assert [pushed(worker)[1] for _ in range(2)] == [id, once]
    node.kill()
    again = disque_server("--appendonly", "yes")
    worker = consumer(again, "q", "once", "CREDIT", 5)
    assert pushed(worker)[1] == id
    assert again.ask("SHOW", once) is None


@pytest.mark.pure
def test_consumers_get_jobs_of_the_whole_cluster(cluster: ClusterFactory) -> None:
    nodes = cluster(3)
    worker = consumer(nodes[2], "q", "CREDIT", 20)
    ids = {nodes[0].ask("ADDJOB", "q", str(number), 0) for number in range(100)}
    got = set()
    while got != ids:
        message = worker.read()
        if isinstance(message, hiredis.PushNotification):
            got.add(message[2])
            worker.send("ACKJOB", message[2])


def test_a_node_that_leaves_tells_its_workers(cluster: ClusterFactory) -> None:
    nodes = cluster(2)
    worker = consumer(nodes[0])
    nodes[0].ask("CLUSTER", "LEAVING", "yes")
    message = worker.read()
    assert isinstance(message, hiredis.PushNotification)
    assert message[0] == b"stopped"
    assert worker.error("CONSUME", "q", "CREDIT", 1).startswith("LEAVING")
    other = consumer(nodes[1])
    id = nodes[0].ask("ADDJOB", "q", "b", 0, "REPLICATE", 1)
    assert pushed(other)[1] == id
