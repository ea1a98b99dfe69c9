"""The metrics of bananaq, with its own events and with those in a Redis."""

import gzip
import socket
import urllib.request
from pathlib import Path

import pytest

from packages.bananaq.tests.support.banana_daemons import launch, redis_options, refused
from packages.bananaq.tests.support.redis_drive import RedisServer
from tests.support.harness import free_port, wait_until
from tests.support.scraping import (
    OPENMETRICS,
    Row,
    documented,
    families,
    page,
    promtool,
    rows,
    values,
)

EVENTS = ("bananaq_events", "bananaq_queue", "bananaq_group")
REDIS = "bananaq_redis"


def expected() -> dict[str, Row]:
    """Return the metrics of bananaq in docs/monitoring.md: some of the node, and its own."""
    common: dict[str, Row] = {}
    node = documented("node")
    for name in node:
        common["bananaq_" + name.removeprefix("disque_")] = node[name]
        if name == "disque_aof_last_rewrite_ok":
            break
    for name in ("metrics_scrapes_total", "metrics_cpu_seconds_total"):
        common[f"bananaq_{name}"] = node[f"disque_{name}"]
    return common | documented("bananaq")


def test_with_its_own_events_everything_but_redis_is_exported(tmp_path: Path) -> None:
    port = free_port()
    daemon = launch(tmp_path, "--metrics-port", str(port), "--metrics-max-queues", "1")
    try:
        wire = daemon.wire()
        for queue in ("q", "r"):
            wire("QADD", queue, 60, "event")
        wire("QGET", "q", "g", "EX", "60")
        wire("ACL", "SETUSER", "team", "%maxconnections=5")
        found = {name: row for name, row in expected().items() if not name.startswith(REDIS)}
        assert rows(families(port)) == found
        assert rows(families(port, OPENMETRICS)) == found
        assert promtool(page(port)) == ""
        assert values(port, "bananaq_queue_events") == {("q",): 1, ("",): 1}
        assert values(port, "bananaq_events_added_total") == {(): 2}
        assert values(port, "bananaq_queues_added_up") == {(): 1}
        for name in (b"\xff\0", b"x" * 60_000, b'a"\n'):
            wire("QADD", name, 60, "event")
        assert families(port, OPENMETRICS)
        assert values(port, "bananaq_queues") == {(): 5}
    finally:
        daemon.close()


def test_with_a_redis_its_link_is_exported(tmp_path: Path, own_redis: RedisServer) -> None:
    port = free_port()
    options = redis_options(own_redis, "metrics")
    daemon = launch(tmp_path, "--metrics-port", str(port), *options, kind="redis")
    try:
        daemon.ask("QADD", "q", 60, "event")
        daemon.ask("ACL", "SETUSER", "team", "%maxconnections=5")
        found = {name: row for name, row in expected().items() if not name.startswith(EVENTS)}
        assert rows(families(port)) == found
        assert values(port, "bananaq_redis_call_seconds_count")[()] > 0
        wait_until(lambda: values(port, "bananaq_redis_up") == {(): 1})
        own_redis.stop()
        wait_until(lambda: values(port, "bananaq_redis_up") == {(): 0})
        daemon.ask("QADD", "q", 60, "event")
        assert values(port, "bananaq_redis_errors_total")[()] > 0
        own_redis.start()
        wait_until(lambda: values(port, "bananaq_redis_up") == {(): 1})
        wait_until(lambda: isinstance(daemon.ask("QADD", "q", 60, "event"), bytes))
        assert values(port, "bananaq_redis_reconnects_total")[()] > 0
    finally:
        daemon.close()


def test_a_page_may_be_compressed(tmp_path: Path) -> None:
    port = free_port()
    daemon = launch(tmp_path, "--metrics-port", str(port))
    try:
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/metrics", headers={"Accept-Encoding": "gzip"}
        )
        with urllib.request.urlopen(request) as answer:
            assert answer.headers["Content-Encoding"] == "gzip"
            assert b"bananaq_up 1\n" in gzip.decompress(answer.read())
    finally:
        daemon.close()


@pytest.mark.parametrize("address", ["127.0.0.1"])
def test_a_used_port_is_a_clear_error(tmp_path: Path, address: str) -> None:
    port = free_port()
    with socket.socket() as other:
        other.bind((address, port))
        other.listen()
        status, text = refused(tmp_path, "--metrics-port", str(port))
    assert status == 1
    assert "in use" in text
    assert "metrics-port" in text
