"""Queue policies on real nodes: known to all, and saved to disk."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.harness import wait_until
from tests.support.live_cluster import LiveCluster, Member, live_cluster

MAILS = [b"name", b"mail.*", b"attempts", 3, b"dead", b"lost", b"backoff", [b"1", b"60"]]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    with live_cluster(tmp_path, 3) as found:
        yield found


def file_of(node: Member) -> Path:
    return node.directory / "nodes.conf.policies"


def remembers_all(node: Member, ids: list[bytes]) -> bool:
    """Return whether the node has saved that the nodes ``ids`` support extensions."""
    path = file_of(node)
    text = path.read_bytes() if path.exists() else b""
    return all(b"node " + id in text for id in ids)


def set_mails(node: Member) -> None:
    """Set a policy once all nodes know that all support extensions."""
    options = ["ATTEMPTS", 3, "DEAD", "lost", "BACKOFF", 1, 60]
    wait_until(lambda: node.ask("QSET", "mail.*", *options) == b"OK")


def wait_known(node: Member, policy: object = MAILS) -> None:
    wait_until(lambda: node.ask("QGET", "mail.a") == policy)


def test_a_policy_set_on_one_node_is_known_by_all_and_survives_kills(cluster: LiveCluster) -> None:
    set_mails(cluster[0])
    cluster[0].kill()
    for node in cluster.nodes[1:]:
        wait_known(node)
    cluster[0].start()
    assert cluster[0].ask("QGET", "mail.a") == MAILS
    for node in cluster.nodes[1:]:
        wait_until(lambda node=node: b"mail" in file_of(node).read_bytes())  # type: ignore[misc]
    for node in cluster:
        node.kill()
    for node in cluster:
        node.start()
        assert node.ask("QGET", "mail.a") == MAILS


def test_a_node_that_was_away_learns_what_changed(cluster: LiveCluster) -> None:
    set_mails(cluster[0])
    wait_known(cluster[2])
    cluster[2].kill()
    assert cluster[0].ask("QDEL", "mail.*") == 1
    assert cluster[1].ask("QSET", "news", "TTL", 5) == b"OK"
    cluster[2].start()
    wait_known(cluster[2], None)
    wait_until(lambda: cluster[2].ask("QGET", "news") == [b"name", b"news", b"ttl", 5])


def test_a_member_that_is_down_does_not_make_a_restarted_node_refuse(cluster: LiveCluster) -> None:
    ids = [node.id for node in cluster.nodes[1:]]
    wait_until(lambda: remembers_all(cluster[0], ids))
    cluster[2].kill()
    cluster[0].kill()
    cluster[0].start()
    assert cluster[0].ask("QSET", "q", "ATTEMPTS", 3) == b"OK"


def test_a_damaged_file_is_reported_and_no_obstacle(tmp_path: Path) -> None:
    with live_cluster(tmp_path, 1) as alone:
        node = alone[0]
        node.ask("QSET", "q", "TTL", 5)
        node.kill()
        damaged = b"policy for mails\n" + file_of(node).read_bytes()
        file_of(node).write_bytes(damaged)
        node.start()
        assert node.ask("QGET", "q") == [b"name", b"q", b"ttl", 5]
        assert "line 1: expected" in node.log.read_text()
        assert file_of(node).with_name("nodes.conf.policies.damaged-1").read_bytes() == damaged


def test_the_file_goes_where_the_node_goes(tmp_path: Path) -> None:
    with live_cluster(tmp_path, 1) as alone:
        node = alone[0]
        node.ask("QSET", "q", "TTL", 5)
        there = tmp_path / "there"
        there.mkdir()
        assert node.ask("CONFIG", "SET", "dir", str(there)) == b"OK"
        node.kill()
        assert b'"q" TTL 5' in (there / "nodes.conf.policies").read_bytes()
