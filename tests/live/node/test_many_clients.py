"""Ten thousand idle connections hardly slow down the busy ones."""

import resource
import socket
import time
from collections.abc import Iterator

import pytest

from tests.support.harness import NodeFactory
from tests.support.live_helpers import add_job, info_value

IDLE = 10_000


@pytest.fixture
def many_files() -> Iterator[None]:
    """Raise the limit on open files for the idle connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = IDLE + 1000
    if hard not in (resource.RLIM_INFINITY,) and hard < wanted:
        pytest.skip(f"the system allows {hard} open files, {wanted} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
@pytest.mark.load  # how long others wait is the question
def test_ten_thousand_idle_clients_do_not_slow_a_busy_one_down(disque_server: NodeFactory) -> None:
    node = disque_server("--maxclients", str(IDLE + 100))
    worker = node.wire()
    idle: list[socket.socket] = []
    try:
        for number in range(IDLE):
            # Several addresses of this machine, since one has too few ports for all tests.
            source = (f"127.0.0.{1 + number % 4}", 0)
            idle.append(socket.create_connection((node.host, node.port), 20, source))
        assert info_value(node, "clients", "connected_clients") >= IDLE
        worst = 0.0
        for _ in range(300):
            started = time.monotonic()
            id = add_job(worker)
            assert worker("GETJOB", "FROM", "q")
            assert worker("ACKJOB", id) == 1
            worst = max(worst, time.monotonic() - started)
        assert worst < 5.0
        for sock in idle[::500]:
            sock.sendall(b"PING\r\n")
            assert sock.recv(100) == b"+PONG\r\n"
    finally:
        for sock in idle:
            sock.close()
    assert worker("PING") == b"PONG"
