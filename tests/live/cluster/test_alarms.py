"""Conditions of a node that other nodes cause, in INFO and in the log."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.alarms import alarms, begun, kinds, over
from tests.support.harness import be_patient, notice_deaths, wait_until
from tests.support.live_cluster import LiveCluster, live_cluster
from tests.support.live_helpers import add_job
from tests.support.small_disk import fill_disk, small_disk


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    with live_cluster(tmp_path, 3) as cluster:
        yield cluster


def test_a_node_that_is_killed_and_comes_back(cluster: LiveCluster) -> None:
    notice_deaths(cluster.nodes)
    cluster[2].kill()
    for node in (cluster[0], cluster[1]):
        assert begun(node, "peer-lost").about == f"127.0.0.1:{cluster[2].port}"
    cluster[2].start()
    be_patient(cluster.nodes)
    for node in (cluster[0], cluster[1]):
        over(node, "peer-lost")


def test_a_node_that_sees_no_majority(cluster: LiveCluster) -> None:
    notice_deaths(cluster.nodes)
    for node in (cluster[1], cluster[2]):
        node.pause()
    try:
        assert begun(cluster[0], "split").severity == "critical"
    finally:
        for node in (cluster[1], cluster[2]):
            node.resume()
    be_patient(cluster.nodes)
    over(cluster[0], "split")
    wait_until(lambda: kinds(cluster[0]) == [])


def test_a_node_that_others_reach_and_this_one_does_not(tmp_path: Path) -> None:
    with live_cluster(tmp_path, 3, proxied=True) as cluster:
        cluster.proxy.split([0], [1])
        line = begun(cluster[0], "peer-unlinked")
        assert (line.severity, line.about) == ("warning", f"127.0.0.1:{cluster[1].announced}")
        assert "peer-lost" not in kinds(cluster[0])
        cluster.proxy.heal()
        over(cluster[0], "peer-unlinked")


def test_memory_that_is_short_on_one_node_and_on_all(cluster: LiveCluster) -> None:
    wire = cluster[0].wire()
    add_job(wire, "q", "x" * 80_000, "REPLICATE", 3)
    used = int(cluster[0].info("memory")["used_memory"])
    assert wire("CONFIG", "SET", "maxmemory", used * 100 // 80) == b"OK"
    assert begun(cluster[0], "memory-short").severity == "warning"
    for node in (cluster[1], cluster[2]):
        used = int(node.info("memory")["used_memory"])
        assert node.ask("CONFIG", "SET", "maxmemory", used * 100 // 80) == b"OK"
    assert begun(cluster[0], "memory-refuses").severity == "critical"
    over(cluster[0], "memory-short")
    for node in cluster:
        assert node.ask("CONFIG", "SET", "maxmemory", 0) == b"OK"
    over(cluster[0], "memory-refuses")
    assert alarms(cluster[0]) == []


def test_a_policy_of_another_node_that_cannot_be_written(tmp_path: Path) -> None:
    cluster = LiveCluster(tmp_path, 2)
    cluster[1].log = tmp_path / "log"
    cluster[1].directory.rmdir()
    with small_disk(cluster[1].directory, 4) as small:
        try:
            cluster.start()
            ballast = fill_disk(small)
            for number in range(200):  # more than there may be room for
                assert cluster[0].ask("QSET", f"queue-{number}", "TTL", 10) == b"OK"
            assert begun(cluster[1], "own-file").severity == "warning"
            assert kinds(cluster[0]) == []
            ballast.unlink()
            over(cluster[1], "own-file")
        finally:
            cluster.close()
