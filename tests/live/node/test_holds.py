"""How long the longest command of others holds up a short one, by the CPU time of the node."""

from collections.abc import Callable
from pathlib import Path

import pytest

from disque_trio.form import form
from tests.support.harness import LiveNode, NodeFactory, Wire, free_port, wait_until
from tests.support.held import Held
from tests.support.live_helpers import add_job, client_lines, info_value, packed
from tests.support.tls import TlsWire, all_certificates, client_context, tls_options

MB = 1024 * 1024
JOBS = 200_000
MOST = 0.020  # s of CPU


def test_a_long_reply_that_nobody_reads_ends_its_client(disque_server: NodeFactory) -> None:
    """And is never in memory as a whole."""
    node = disque_server("--client-output-buffer-limit", "normal 20mb 0 0")
    control = node.wire()
    for _ in range(200):
        add_job(control, "big", b"x" * MB)
    before = info_value(node, "memory", "used_memory_rss")
    slow = node.wire()
    slow.send("QPEEK", "big", 200)
    wait_until(lambda: len(client_lines(control)) == 1)
    assert info_value(node, "memory", "used_memory_rss") - before < 80 * MB
    assert control("PING") == b"PONG"


@pytest.fixture
def crowded(disque_server: NodeFactory) -> tuple[LiveNode, list[bytes]]:
    node = disque_server()
    wire = node.wire()
    ids: list[bytes] = []
    request = packed("ADDJOB", "q", "x" * 20, 0, "RETRY", 3600)
    for _ in range(JOBS // 1_000):
        wire.raw(request * 1_000)
        ids += [wire.read() for _ in range(1_000)]  # type: ignore[misc]
    wire.close()
    return node, ids


def group(*requests: tuple[bytes | str | int, ...]) -> Callable[[Wire, list[bytes]], None]:
    """Return what sends ``requests`` as a group and reads the replies."""

    def send(wire: Wire, ids: list[bytes]) -> None:
        wire.raw(packed("MULTI") + b"".join(packed(*request) for request in requests))
        for _ in range(1 + len(requests)):
            wire.read()
        wire("EXEC")

    return send


def by_ids(*words: str) -> Callable[[Wire, list[bytes]], None]:
    """Return what sends a command about all ids."""
    return lambda wire, ids: _ask(wire, *words, *ids)


def _ask(wire: Wire, *words: bytes | str | int) -> None:
    wire(*words)


def asking(*words: str | int) -> Callable[[Wire, list[bytes]], None]:
    """Return what sends a command."""
    return lambda wire, ids: _ask(wire, *words)


def stars(count: int) -> list[str]:
    """Patterns that are expensive to compare with names."""
    return ["*a" * 30 + f"*{number}" for number in range(count)]


@pytest.mark.load
@pytest.mark.skipif(form() != "compiled", reason="the aim is for the build that ships")
def test_no_command_holds_a_ping_for_long(crowded: tuple[LiveNode, list[bytes]]) -> None:
    """Commands that walk over everything, one after the other; the last one ends all jobs."""
    node, ids = crowded
    held: dict[str, float] = {}
    for name, do in {
        "JSCAN BUSYLOOP": asking("JSCAN", "BUSYLOOP"),
        "JSCAN REPLY all": asking("JSCAN", "BUSYLOOP", "REPLY", "all"),
        "QPEEK": asking("QPEEK", "q", JOBS),
        "QSTAT FULL": asking("QSTAT", "q", "FULL"),
        "INFO": asking("INFO", "all"),
        "EXEC of QLEN": group(*[("QLEN", "q")] * 30_000),
        "EXEC of ADDJOB": group(*[("ADDJOB", "g", "x", 0)] * 20_000),
        "EXEC of JSCAN": group(("JSCAN", "BUSYLOOP")),
        "EXEC of INFO": group(*[("INFO",)] * 5_000),
        "ECHO of 64 MB": asking("ECHO", "x" * 64 * MB),
        "200,000 words": asking("COMMAND", "INFO", *["getjob"] * 200_000),
        "DEQUEUE": by_ids("DEQUEUE"),
        "ENQUEUE": by_ids("ENQUEUE"),
        "QMOVE": asking("QMOVE", "q", "r"),
        "GETJOB COUNT": asking("GETJOB", "COUNT", JOBS, "FROM", "r"),
        "ACKJOB": by_ids("ACKJOB"),
        "QPURGE": asking("QPURGE", "g"),
        "patterns": asking("GETJOB", "NOHANG", "PATTERN", "FROM", *stars(1_000)),
        "other patterns": asking("GETJOB", "NOHANG", "PATTERN", "FROM", *stars(2_000)[1_000:]),
    }.items():
        with Held(node.port, node.process.pid) as measured:
            wire = node.wire()
            do(wire, ids)
            wire.close()
        held[name] = round(measured.worst, 4)
    assert max(held.values()) < MOST, held


@pytest.mark.load
@pytest.mark.skipif(form() != "compiled", reason="the aim is for the build that ships")
@pytest.mark.parametrize("replies", [15, 1])
def test_long_replies_over_tls_hold_no_ping_for_long(
    disque_server: NodeFactory, tmp_path: Path, replies: int
) -> None:
    certificates = all_certificates(tmp_path)
    port = free_port()
    node = disque_server(*tls_options(certificates, port))
    control = node.wire()
    for _ in range(10):
        add_job(control, "q", b"x" * MB)
    request = packed("MULTI") + packed("QPEEK", "q", 10) * replies + packed("EXEC")
    wire = TlsWire(port, client_context(certificates))
    with Held(node.port, node.process.pid) as measured:
        *_, group = wire.converse(request, replies + 2)
    wire.sock.close()
    assert isinstance(group, list)
    assert [len(jobs) for jobs in group] == [10] * replies
    assert measured.worst < MOST
