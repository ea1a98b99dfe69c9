"""What is wrong with a node, in INFO and in its log, while it goes wrong and is repaired."""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.alarms import alarms, kinds, told
from tests.support.harness import NodeFactory, free_port, wait_until
from tests.support.live_cluster import live_cluster
from tests.support.several import Start
from tests.support.small_disk import small_disk
from tests.support.tls import all_certificates, tls_options

HOOK = ROOT / "tests" / "support" / "skewed_clock"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 16) as where:
        yield where


def test_a_full_disk_is_told_of_when_it_begins_and_when_it_ends(
    disque_server: NodeFactory, disk: Path
) -> None:
    ballast = disk / "ballast"
    node = disque_server("--appendonly", "yes", cwd=disk)
    assert kinds(node) == []
    with suppress(OSError):
        ballast.write_bytes(bytes(16 << 20))
    wire = node.wire()
    wait_until(lambda: wire("ADDJOB", "q", "x" * 100_000, 0) and "disk-full" in kinds(node))
    line = alarms(node)[0]
    assert (line.kind, line.severity) == ("disk-full", "critical")
    assert "No space left on device" in line.cause
    assert told(node, "disk-full") == ["warning"]
    ballast.unlink()
    wait_until(lambda: "disk-full" not in kinds(node))
    assert told(node, "disk-full") == ["warning", "notice"]


def test_a_node_that_is_lost_is_named_by_the_others_until_it_is_back(tmp_path: Path) -> None:
    with live_cluster(tmp_path, 3, node_timeout=500) as cluster:
        lost = cluster[2]
        lost.kill()
        for node in (cluster[0], cluster[1]):
            wait_until(lambda node=node: kinds(node) == ["peer-lost"])
            assert alarms(node)[0].about == f"127.0.0.1:{lost.port}"
        lost.start()
        for number in (0, 1):
            node = cluster[number]
            wait_until(lambda node=node: kinds(node) == [])
            assert told(node, "peer-lost") == ["warning", "notice"]


def test_a_clock_that_is_off_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with live_cluster(tmp_path, 2) as cluster:
        other = cluster[1]
        other.stop()
        paths = [str(HOOK), *filter(None, [os.environ.get("PYTHONPATH")]), str(ROOT)]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
        monkeypatch.setenv("WRONG_CLOCK_MS", "3600000")
        other.program = (sys.executable, "-m", "disque_trio.server")
        other.start()
        wait_until(lambda: "clock" in kinds(other))
        wait_until(lambda: "clock" in kinds(cluster[0]))
        (line,) = [line for line in alarms(cluster[0]) if line.kind == "clock"]
        assert line.about == f"127.0.0.1:{other.port}"
        assert "ahead" in line.cause


def test_any_process_tells_of_all(several: Start) -> None:
    server = several()
    wire = server.nodes[1].wire()
    assert isinstance(wire("ADDJOB", "q", "x" * 10_000, 0), bytes)
    assert wire("CONFIG", "SET", "maxmemory", "5000") == b"OK"
    for node in server.nodes:
        wait_until(lambda node=node: kinds(node) == ["memory-full"])
        assert alarms(node)[0].process == 1


def test_a_certificate_that_ends_soon_is_told_of(
    disque_server: NodeFactory, tmp_path: Path
) -> None:
    certificates = all_certificates(tmp_path)
    node = disque_server(*tls_options(certificates, free_port()))
    assert kinds(node) == ["certificate-ends"]
    assert alarms(node)[0].about.endswith("ours.pem")
