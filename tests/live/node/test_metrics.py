"""Scraping a real node: under load, by many clients at once, and by hostile ones."""

import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path

import pytest

from disque_trio.extras import how_to_install
from disque_trio.metrics.labels import label_value
from tests.support.harness import HANG_SECONDS, LiveNode, NodeFactory, free_port, wait_until
from tests.support.live_helpers import add_job, run_server
from tests.support.scraping import (
    OPENMETRICS,
    documented,
    families,
    page,
    promtool,
    rows,
    values,
)
from tests.support.several import COUNT, Start


class Scraped:
    """A node and the port of its metrics."""

    def __init__(self, node: LiveNode, port: int) -> None:
        self.node = node
        self.port = port


@pytest.fixture
def scraped(disque_server: NodeFactory) -> Scraped:
    port = free_port()
    return Scraped(disque_server("--metrics-port", str(port), "--appendonly", "yes"), port)


def raw(port: int, sent: bytes) -> bytes:
    """Send ``sent``; return the response."""
    with socket.create_connection(("127.0.0.1", port), timeout=HANG_SECONDS) as sock:
        sock.sendall(sent)
        answer = b""
        while data := sock.recv(65_536):
            answer += data
    return answer


def test_the_documented_metrics_are_those_exported(disque_server: NodeFactory) -> None:
    port = free_port()
    node = disque_server("--metrics-port", str(port), "--metrics-max-queues", "1")
    id = add_job(node.wire(), "q", "body")
    add_job(node.wire(), "other", "body")
    node.ask("GETJOB", "FROM", "q")
    node.ask("ACKJOB", id)
    node.ask("ACL", "SETUSER", "shop", "%maxmemory=1mb", "%rate=5/s")
    expected = documented("node")
    del expected["disque_process_up"]  # several processes have it
    assert rows(families(port)) == expected
    assert rows(families(port, OPENMETRICS)) == expected
    assert promtool(page(port)) == ""


@pytest.mark.pure
def test_jobs_are_counted(scraped: Scraped) -> None:
    wire = scraped.node.wire()
    for _ in range(3):
        id = add_job(wire, "mail", "body")
        wire("GETJOB", "FROM", "mail")
    wire("ACKJOB", id)
    port = scraped.port
    assert values(port, "disque_jobs_added_total") == {("mail",): 3}
    assert values(port, "disque_jobs_acked_total") == {("mail",): 1}
    assert values(port, "disque_queue_jobs")["mail", "active"] == 2
    assert values(port, "disque_job_processing_seconds_count") == {("mail",): 1}
    assert values(port, "disque_commands_total")[("addjob",)] == 3
    assert values(port, "disque_command_duration_seconds_count")[("getjob",)] == 3
    assert values(port, "disque_up") == {(): 1}
    assert values(port, "disque_turn_seconds_count")[()] > 0
    wait_until(lambda: values(port, "disque_aof_fsync_seconds_count")[()] > 0)
    wait_until(lambda: values(port, "disque_event_loop_lag_seconds_count")[()] > 0)
    wire("CONFIG", "RESETSTAT")
    assert values(port, "disque_jobs_added_total") == {("mail",): 0}


def test_a_hundred_scrape_at_once_while_it_works(scraped: Scraped) -> None:
    over = threading.Event()
    wire = scraped.node.wire()

    def work() -> None:
        number = 0
        while not over.is_set():
            number += 1
            wire("ADDJOB", f"q{number % 500}", "body", 0)
            wire("GETJOB", "FROM", f"q{number % 500}")

    worker = threading.Thread(target=work)
    worker.start()
    try:
        with ThreadPoolExecutor(100) as pool:
            pages = list(pool.map(page, [scraped.port] * 100))
    finally:
        over.set()
        worker.join()
    assert len(pages) == 100
    assert all("disque_up 1\n" in text for text in pages)
    assert families(scraped.port)
    assert wire("PING") == b"PONG"


def test_an_invalid_request_is_refused_and_the_node_continues(scraped: Scraped) -> None:
    port = scraped.port
    assert raw(port, b"\x16\x03\x01\x00\x05hello").startswith(b"HTTP/1.1 400 ")
    assert raw(port, b"*1\r\n$4\r\nPING\r\n").startswith(b"HTTP/1.1 400 ")
    assert raw(port, b"GET /metrics HTTP/1.1\r\nA: " + b"x" * 20_000).startswith(b"HTTP/1.1 431 ")
    assert raw(port, b"DELETE /metrics HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 405 ")
    assert raw(port, b"GET /nothing HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 404 ")
    head = raw(port, b"HEAD /metrics HTTP/1.1\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert head.endswith(b"\r\n\r\n")
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(50)]
    assert values(port, "disque_up") == {(): 1}
    for sock in silent:
        sock.close()


def test_hostile_names_of_queues_do_not_break_the_page(scraped: Scraped) -> None:
    names = [b'a"b', b"a\nb", b"a\\", b"a\0b\rc", b"\xff\xfe", b"x" * 65_000, b'",x="', b"#"]
    wire = scraped.node.wire()
    for name in names:
        wire("ADDJOB", name, "body", 0)
    labels = {(label_value(name),) for name in names}
    assert set(values(scraped.port, "disque_queue_blocked_clients")) == labels
    assert families(scraped.port, OPENMETRICS)
    assert promtool(page(scraped.port)) == ""


def test_the_limit_of_queues_can_be_set(scraped: Scraped) -> None:
    wire = scraped.node.wire()
    for number in range(5):
        add_job(wire, f"q{number}", "body")
    assert values(scraped.port, "disque_queues_added_up") == {(): 0}
    wire("CONFIG", "SET", "metrics-max-queues", "2")
    assert values(scraped.port, "disque_queues_added_up") == {(): 3}
    assert values(scraped.port, "disque_queue_jobs")["", "queued"] == 3


def test_a_restart_keeps_the_port(scraped: Scraped) -> None:
    wire = scraped.node.wire()
    add_job(wire, "q", "body")
    started = values(scraped.port, "process_start_time_seconds")
    wire.send("RESTART")
    with pytest.raises(EOFError):
        wire.read()
    wait_until(lambda: scraped.node.ask("PING") == b"PONG")
    assert values(scraped.port, "disque_queue_jobs")["q", "queued"] == 1
    assert values(scraped.port, "disque_jobs_added_total") == {("q",): 0}
    # The PID stays as well. The boot time is not known to the microsecond.
    assert values(scraped.port, "process_start_time_seconds") == pytest.approx(started, abs=0.01)


def test_any_of_several_processes_tells_the_metrics_of_all(several: Start) -> None:
    port = free_port()
    server = several("--metrics-port", str(port))
    for number in range(COUNT):
        server.add(number)
    assert values(port, "disque_jobs_added_total") == {("0", "q"): 1, ("1", "q"): 1}
    assert values(port, "disque_up") == {("0",): 1, ("1",): 1}
    assert set(values(port, "process_cpu_seconds_total")) == {("0",), ("1",)}
    assert families(port, OPENMETRICS)
    assert promtool(page(port)) == ""
    server.nodes[1].wire().send("RESTART")

    def is_back() -> bool:
        try:
            return values(port, "disque_jobs_added_total").get(("1", "q")) == 0
        except (OSError, HTTPException):
            return False  # it was asked, and restarted

    wait_until(is_back)
    pid = server.pid(0)
    os.kill(pid, signal.SIGSTOP)
    try:
        text = page(port)
        assert 'disque_process_up{process="0"} 0\ndisque_process_up{process="1"} 1\n' in text
        assert 'disque_up{process="1"} 1\n' in text
        assert 'disque_up{process="0"}' not in text
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_node_whose_disk_is_full_is_scraped_and_says_so(scraped: Scraped) -> None:
    wire = scraped.node.wire()
    add_job(wire, "q", "body")
    size = round(values(scraped.port, "disque_aof_size_bytes")[()])
    assert values(scraped.port, "disque_aof_last_write_ok") == {(): 1}
    resource.prlimit(scraped.node.process.pid, resource.RLIMIT_FSIZE, (size, -1))
    with pytest.raises(AssertionError, match="MISCONF"):
        add_job(wire, "q", "x" * 10_000)
    assert values(scraped.port, "disque_aof_last_write_ok") == {(): 0}
    assert values(scraped.port, "disque_up") == {(): 1}
    alarm = ("file-write", "critical")
    wait_until(lambda: values(scraped.port, "disque_alarm")[alarm] == 1)
    assert values(scraped.port, "disque_alarm_since_timestamp_seconds")[alarm] > 1e9
    others = values(scraped.port, "disque_alarm")
    assert all(severity in ("critical", "warning") for _, severity in others)


@pytest.fixture
def taken() -> Iterator[int]:
    port = free_port()
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        yield port


def test_a_taken_port_is_a_clear_error(tmp_path: Path, taken: int) -> None:
    result = run_server(
        *("--port", str(free_port()), "--bind", "127.0.0.1", "--metrics-port", str(taken)),
        cwd=tmp_path,
    )
    assert result.returncode == 1
    assert f"metrics-port: 127.0.0.1 port {taken}" in result.stderr
    assert "in use" in result.stderr
    assert "Traceback" not in result.stderr


def test_ipv6_and_several_addresses(disque_server: NodeFactory) -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6")
    port = free_port()
    disque_server("--metrics-port", str(port), "--metrics-bind", "127.0.0.1", "::1")
    assert page(port)
    try:
        socket.create_connection(("::1", port)).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    assert "disque_up 1\n" in page(port, host="[::1]")


def test_without_the_package_the_node_does_not_start_and_says_what_to_do(tmp_path: Path) -> None:
    hide = (
        "import sys; sys.modules['prometheus_client'] = None; import disque_trio.node.command as c"
    )
    command = [sys.executable, "-c", f"{hide}; sys.exit(c.main())"]
    options = ["--port", str(free_port()), "--bind", "127.0.0.1", "--metrics-port"]
    done = subprocess.run(
        [*command, *options, str(free_port())], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert how_to_install("metrics") in done.stderr
    assert "Traceback" not in done.stderr
