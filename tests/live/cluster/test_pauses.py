"""PAUSE with BCAST on real nodes: those that are down, or join later, learn of it, too."""

from pathlib import Path

from tests.support.harness import wait_until
from tests.support.live_cluster import Member, live_cluster
from tests.support.live_helpers import add_job


def wait_paused(node: Member, state: bytes) -> None:
    wait_until(lambda: node.ask("PAUSE", "q", "state") == state)


def test_a_node_that_was_down_during_a_pause_or_its_end_learns_of_it(tmp_path: Path) -> None:
    with live_cluster(tmp_path, 3) as cluster:
        cluster[2].kill()
        assert cluster[0].ask("PAUSE", "q", "all", "bcast") == b"all"
        cluster[2].start()
        for node in cluster:
            wait_paused(node, b"all")
        assert cluster[2].wire().error("ADDJOB", "q", "body", 0).startswith("PAUSED")
        cluster[2].kill()
        assert cluster[1].ask("PAUSE", "q", "none", "bcast") == b"none"
        cluster[2].start()
        for node in cluster:
            wait_paused(node, b"none")
        cluster[2].ask("ADDJOB", "q", "body", 0, "REPLICATE", 1)


def test_a_node_that_is_back_learns_what_all_share_before_it_takes_many_jobs(
    tmp_path: Path,
) -> None:
    with live_cluster(tmp_path, 2) as cluster:
        there, back = cluster
        back.kill()
        there.ask("PAUSE", "q", "all", "bcast")
        there.ask("QSET", "q", "ATTEMPTS", 3, "DEAD", "lost")
        there.ask("CRON", "SET", "nightly", "@every 1d", "q", "job")
        there.ask("BIND", "topic", "q")
        back.start()
        cluster.wait_joined()
        wire = there.wire()
        for _ in range(10):  # the time that this takes is that of a few packets
            add_job(wire, "other", "body", "REPLICATE", 2)
        assert back.ask("PAUSE", "q", "state") == b"all"
        assert back.ask("QGET") == there.ask("QGET")
        assert back.ask("CRON", "GET", "nightly") == there.ask("CRON", "GET", "nightly") != []
        assert back.ask("BINDINGS") == [[b"topic", b"q"]]


def test_a_node_that_joins_later_has_the_pause_and_keeps_it(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    with live_cluster(tmp_path / "old", 2) as old, live_cluster(tmp_path / "new", 1) as new:
        old[0].ask("PAUSE", "q", "out", "bcast")
        new[0].ask("CLUSTER", "MEET", "127.0.0.1", old[0].port)
        wait_paused(new[0], b"out")
        path = new[0].directory / "nodes.conf.pauses"
        wait_until(lambda: path.exists() and b'"q" out' in path.read_bytes())
        new[0].kill()
        new[0].start()
        assert new[0].ask("PAUSE", "q", "state") == b"out"
        told = new[0].ask("QSTAT", "q")
        assert isinstance(told, list)
        assert told[told.index(b"pause") + 1] == b"out"


def test_nodes_that_stop_all_at_once_keep_a_pause(tmp_path: Path) -> None:
    with live_cluster(tmp_path, 2) as cluster:
        cluster[0].ask("PAUSE", "q", "in", "bcast")
        wait_paused(cluster[1], b"in")
        cluster[1].ask("PAUSE", "p", "out")  # not shared: it is forgotten without a file
        for node in cluster:
            node.kill()
        for node in cluster:
            node.start()
        wait_paused(cluster[0], b"in")
        wait_paused(cluster[1], b"in")
        assert cluster[1].ask("PAUSE", "p", "state") == b"none"
