"""A cluster with a secret: nodes that cannot get in, and changing the secret at run time."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from disque_trio.protocol.bus import MEET, PacketWriter
from tests.support.bus_proxy import HOST
from tests.support.harness import BUS_OFFSET, HANG_SECONDS, wait_until
from tests.support.live_cluster import LiveCluster, Member, job_goes_round, live_cluster
from tests.support.live_helpers import add_job

SECRET = "the-secret-of-the-nodes"
NEW = "the-one-that-comes-next"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    directory = tmp_path_factory.mktemp("secret")
    with live_cluster(directory, 3, "--cluster-secret", SECRET) as found:
        yield found


@pytest.fixture
def cluster(running: LiveCluster) -> Iterator[LiveCluster]:
    """Three nodes without jobs."""
    yield running
    running.end_test()


@pytest.fixture(params=["", "another-secret-than-theirs"])
def stranger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Member]:
    """A node outside the cluster, without a secret or with a different one."""
    options = ["--cluster-secret", request.param] if request.param else []
    with live_cluster(tmp_path, 1, *options) as other:
        yield other[0]


def refused(node: Member) -> int:
    return int(node.info("stats")["cluster_links_refused"])


def use(node: Member, *secrets: str) -> None:
    assert node.ask("CONFIG", "SET", "cluster-secret", " ".join(secrets)) == b"OK"


def test_jobs_go_through_a_cluster_with_a_secret(cluster: LiveCluster) -> None:
    job_goes_round(cluster)


def test_a_node_that_does_not_know_the_secret_cannot_join(
    cluster: LiveCluster, stranger: Member
) -> None:
    before = refused(cluster[0])
    id = stranger.id
    stranger.meet(cluster[0])
    cluster[1].meet(stranger)
    wait_until(lambda: refused(cluster[0]) > before + 1)
    for node in cluster:
        assert id not in node.lines()
        assert node.cluster_info()["cluster_reachable_nodes"] == "2"
    assert not set(cluster.ids) & set(stranger.lines())
    add_job(cluster[0].wire(), "q", "body", "REPLICATE", 3)
    assert stranger.registered() == 0


def test_packets_of_strangers_are_ignored(cluster: LiveCluster) -> None:
    packets = PacketWriter(b"a" * 40, cluster[0].port)
    with socket.create_connection((HOST, cluster[0].port + BUS_OFFSET), HANG_SECONDS) as sock:
        sock.settimeout(HANG_SECONDS)
        sock.sendall(packets.packet(MEET, b""))
        received = b""
        try:
            while data := sock.recv(1000):
                received += data
        except ConnectionError:
            pass
    assert b"DbuZ" not in received
    assert b"a" * 40 not in cluster[0].lines()


def test_the_secret_is_changed_while_jobs_go_through(cluster: LiveCluster) -> None:
    for secrets in ((SECRET, NEW), (NEW, SECRET), (NEW,)):
        for node in cluster:
            use(node, *secrets)
        job_goes_round(cluster)
    assert cluster[0].ask("CONFIG", "GET", "cluster-secret") == [b"cluster-secret", b"(redacted)"]
    for node in cluster:
        use(node, NEW, SECRET)
    for node in cluster:
        use(node, SECRET)
    cluster.wait_joined()


def test_a_node_with_another_secret_is_out_until_it_has_the_same(cluster: LiveCluster) -> None:
    id = cluster[2].id
    use(cluster[2], NEW)
    cluster.wait_failing([id], cluster.nodes[:2])
    use(cluster[2], SECRET)
    cluster.wait_joined()
    job_goes_round(cluster)


def test_the_secret_is_in_no_log(cluster: LiveCluster) -> None:
    node = cluster[0]
    wire = node.wire()
    assert wire("CONFIG", "SET", "slowlog-log-slower-than", 0) == b"OK"
    watcher = node.wire()
    assert watcher("MONITOR") == b"OK"
    wire("CONFIG", "SET", "hz", 11, "cluster-secret", SECRET)
    short = wire("CONFIG", "SET", "cluster-secret", "too-short-by-it")
    assert str(short).startswith("ERR Invalid argument '(redacted)'")
    assert SECRET not in repr(wire("SLOWLOG", "GET", 100))
    assert "too-short" not in repr(wire("SLOWLOG", "GET", 100))
    line = repr(watcher.read())
    assert "(redacted)" in line
    assert SECRET not in line
    assert SECRET not in node.log.read_text()
