"""Membership of real nodes: joining, IDs, forgetting, resetting, leaving."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.harness import wait_until
from tests.support.live_cluster import LiveCluster, Member, live_cluster
from tests.support.live_helpers import add_job
from tests.support.live_load import ONCE, load_on


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    with live_cluster(tmp_path, 3) as found:
        yield found


def stays_so(condition: Callable[[], bool], seconds: float = 1.5) -> bool:
    """Return whether ``condition()`` stays true for some rounds of gossip."""
    end = time.monotonic() + seconds
    while condition():
        if time.monotonic() > end:
            return True
        time.sleep(0.05)
    return False


def test_seven_nodes_find_each_other_along_a_chain(tmp_path: Path) -> None:
    cluster = LiveCluster(tmp_path, 7)
    try:
        cluster.start(meet=False)
        for node, following in zip(cluster.nodes, cluster.nodes[1:], strict=False):
            node.meet(following)
        cluster.wait_joined()
        ids = sorted(cluster.ids)
        assert len(set(ids)) == 7
        for node in cluster:
            lines = node.lines()
            assert sorted(lines) == ids
            assert b"myself" in lines[node.id][2]
            assert sorted(node.priorities()) == ids
    finally:
        cluster.close()


def test_nodes_find_each_other_by_name(tmp_path: Path) -> None:
    cluster = LiveCluster(tmp_path, 2)
    try:
        cluster.start(meet=False)
        first, second = cluster
        assert first.ask("CLUSTER", "MEET", "localhost", second.port) == b"OK"
        cluster.wait_joined()
    finally:
        cluster.close()


def test_a_node_killed_and_started_again_is_the_same_member(cluster: LiveCluster) -> None:
    node = cluster[2]
    id = node.id
    # It has saved its state without being asked to.
    node.kill()
    cluster.wait_failing([id], cluster.nodes[:2])
    node.start()
    assert node.id == id
    cluster.wait_joined()
    job = add_job(node.wire(), "q", "body", "REPLICATE", 3)
    assert len(cluster.holders(job.encode())) == 3


def test_a_cluster_stopped_as_a_whole_comes_back_as_one(cluster: LiveCluster) -> None:
    ids = cluster.ids
    for node in cluster:
        assert node.stop() == 0
    for node in cluster:
        node.spawn()
    for node in cluster:
        node.wait_ready()
    assert cluster.ids == ids
    cluster.wait_joined()


def test_a_dead_node_is_marked_as_failing_and_can_be_forgotten(cluster: LiveCluster) -> None:
    gone = cluster[2].id
    cluster[2].kill()
    cluster.wait_failing([gone], cluster.nodes[:2])
    for node in cluster.nodes[:2]:
        wait_until(lambda node=node: node.cluster_info()["cluster_reachable_nodes"] == "1")  # type: ignore[misc]
        # Forgotten by one node, it must not come back through the other's gossip.
        assert node.ask("CLUSTER", "FORGET", gone) == b"OK"
    cluster.wait_joined(cluster.nodes[:2])
    assert stays_so(lambda: all(gone not in node.lines() for node in cluster.nodes[:2]))


def test_a_forgotten_node_that_lives_does_not_come_back_by_itself(cluster: LiveCluster) -> None:
    id = cluster[2].id
    for node in cluster.nodes[:2]:
        assert node.ask("CLUSTER", "FORGET", id) == b"OK"
    cluster.wait_joined(cluster.nodes[:2])
    assert stays_so(lambda: all(id not in node.lines() for node in cluster.nodes[:2]))


def test_after_a_soft_reset_a_node_is_alone_and_empty_with_its_old_id(cluster: LiveCluster) -> None:
    node = cluster[2]
    id = node.id
    add_job(node.wire(), "q", "body", "REPLICATE", 3)
    assert node.ask("CLUSTER", "RESET") == b"OK"
    assert node.id == id
    assert node.registered() == 0
    # The others still know it, and meet it again with their pings.
    cluster[0].meet(node)
    cluster.wait_joined()


def test_after_a_hard_reset_it_is_another_node(cluster: LiveCluster) -> None:
    node = cluster[2]
    old = node.id
    assert node.ask("CLUSTER", "RESET", "HARD") == b"OK"
    new = node.id
    assert new != old
    for other in cluster.nodes[:2]:
        assert other.ask("CLUSTER", "FORGET", old) == b"OK"
    cluster[0].meet(node)
    cluster.wait_joined()
    assert sorted(cluster[0].lines()) == sorted(cluster.ids)
    assert old not in cluster[1].lines()


@pytest.mark.pure
def test_a_leaving_node_sends_its_clients_away_until_it_stays(cluster: LiveCluster) -> None:
    leaver, other = cluster[2], cluster[0]
    id = leaver.id
    waiting = leaver.wire()
    waiting.send("GETJOB", "FROM", "q")
    assert leaver.ask("CLUSTER", "LEAVING", "yes") == b"OK"
    assert str(waiting.read()).startswith("LEAVING")
    assert leaver.ask("CLUSTER", "LEAVING") == b"yes"
    assert leaver.priorities()[id] == 100
    wait_until(lambda: other.priorities()[id] == 100)
    assert b"leaving" in other.lines()[id][2]
    assert leaver.wire().error("GETJOB", "FROM", "q").startswith("LEAVING")
    assert leaver.ask("GETJOB", "NOHANG", "FROM", "q") is None
    text = other.wire().error("ADDJOB", "q", "body", 0, "REPLICATE", 3)
    assert text.startswith("NOREPL")
    text = leaver.wire().error("ADDJOB", "q", "body", 0, "REPLICATE", 3)
    assert text.startswith("NOREPL")
    assert "leaving the cluster" in text
    # Jobs added at it go to the two nodes that stay, and to their consumers.
    job = add_job(leaver.wire(), "q", "body", "REPLICATE", 2).encode()
    assert [node.index for node in cluster.holders(job)] == [0, 1]
    jobs = cluster[1].ask("GETJOB", "FROM", "q")
    assert jobs == [[b"q", job, b"body"]]
    assert leaver.ask("CLUSTER", "LEAVING", "no") == b"OK"
    cluster.wait_joined()


def test_a_node_is_taken_out_of_a_cluster_at_work(tmp_path: Path) -> None:
    with live_cluster(tmp_path, 4, "--appendonly", "yes") as cluster, load_on(cluster) as load:
        leaver, staying = cluster[3], cluster.nodes[:3]
        id = leaver.id
        with load_on(cluster) as at_leaver:
            at_leaver.ledger = load.ledger
            load.consume(staying)
            at_leaver.consume([leaver])
            load.produce(staying, "REPLICATE", 3, pause=0.01)
            at_leaver.produce([leaver], "REPLICATE", 3, pause=0.01)
            load.produce(staying[:1], queue=ONCE, pause=0.02)
            at_leaver.produce([leaver], queue=ONCE, pause=0.02)
            load.wait_confirmed(300)
            held = [
                add_job(node.wire(), "held", "body", "REPLICATE", 3).encode() for node in cluster
            ]
            assert leaver.ask("CLUSTER", "LEAVING", "yes") == b"OK"
            for node in staying:
                wait_until(lambda node=node: node.priorities()[id] == 100)
            assert leaver.wire().error("GETJOB", "FROM", "empty").startswith("LEAVING")
            for n in range(20):
                job = add_job(leaver.wire(), "held", str(n), "REPLICATE", 3).encode()
                assert cluster.holders(job) == staying
                held.append(job)
            load.wait_confirmed(300)
            # Waiting jobs keep their copies all the time. One that was not confirmed within 50 ms
            # has another one.
            assert min(len(cluster.holders(job)) for job in held) >= 3
            at_leaver.stop_producing()
        _consume(staying[1], "held", held)
        wait_until(lambda: leaver.registered() == 0)
        assert stays_so(lambda: leaver.registered() == 0, 0.5)
        leaver.kill()
        for node in staying:
            assert node.ask("CLUSTER", "FORGET", id) == b"OK"
        cluster.wait_joined(staying)
        load.wait_confirmed(100)
        ledger = load.finish()
        assert set(ledger.refused) <= {"NOREPL"}


def _consume(node: Member, queue: str, ids: list[bytes]) -> None:
    """Take all of these jobs at ``node`` and acknowledge them."""
    wire = node.wire()
    rest = set(ids)
    while rest:
        jobs = wire("GETJOB", "COUNT", 100, "FROM", queue)
        assert isinstance(jobs, list), f"{len(rest)} jobs are missing"
        rest -= {job[1] for job in jobs}
        assert wire("ACKJOB", *(job[1] for job in jobs)) == len(jobs)
