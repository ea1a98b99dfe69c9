"""Real nodes, stopped or separated by network partitions of all shapes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.harness import wait_until
from tests.support.live_cluster import LiveCluster, Member, live_cluster
from tests.support.live_load import ONCE, QUEUE, Load, load_on

COUNT = 7
COPIES_WITHIN = 30_000  # ms


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    directory = tmp_path_factory.mktemp("partitions")
    with live_cluster(directory, COUNT, proxied=True) as found:
        yield found


@pytest.fixture
def cluster(running: LiveCluster) -> Iterator[LiveCluster]:
    """Seven nodes whose bus goes through a proxy."""
    running.wait_joined()
    yield running
    running.proxy.heal()
    running.wait_joined()
    running.clean()


def loaded(load: Load, cluster: LiveCluster, copies: int) -> None:
    """Start producers and consumers at all nodes. A job has half a minute to get its copies: if it
    were given up sooner on a starved machine, it would only be added again.

    The pauses leave the network's process enough time on a machine that gives it a thirtieth of a
    CPU. More jobs with RETRY 0, which wait for no copies, would fill it faster than it empties.
    """
    load.consume(cluster)
    load.produce(cluster, "REPLICATE", copies, timeout=COPIES_WITHIN, pause=0.1)
    load.produce(cluster, queue=ONCE, pause=0.5)
    load.wait_confirmed(50)


def add(node: Member, copies: int, within: int) -> object:
    """Add a job at ``node`` that has ``within`` ms to get its copies; return the reply.

    Refused jobs may be delivered as well: a copy may be in flight when the network breaks. But
    not before the command ends, as an acknowledgement would confirm the job.
    """
    return node.wire()("ADDJOB", QUEUE, "body", within, "REPLICATE", copies, "RETRY", 3)


def goes_on(*nodes: Member, copies: int) -> None:
    """Wait until a job added at each of ``nodes`` gets ``copies`` copies."""
    for node in nodes:
        wait_until(lambda node=node: isinstance(add(node, copies, COPIES_WITHIN), bytes))


def refuses(node: Member, copies: int) -> None:
    """Check that a job added at ``node`` fails to get ``copies`` copies, in time."""
    assert str(add(node, copies, 1_000)).startswith("NOREPL")


def test_a_stopped_node_delays_nobody_and_nothing_is_lost(tmp_path: Path) -> None:
    with live_cluster(tmp_path, 3) as cluster, load_on(cluster) as load:
        load.consume(cluster)
        load.produce(cluster, "REPLICATE", 2, timeout=COPIES_WITHIN, pause=0.01)
        load.produce(cluster, queue=ONCE, pause=0.02)
        for node in cluster:
            others = [other for other in cluster if other is not node]
            ids = [node.id]
            load.wait_confirmed(50)
            node.pause()
            cluster.wait_failing(ids, others)
            goes_on(*others, copies=2)
            refuses(others[0], 3)
            load.wait_confirmed(100)
            node.resume()
            cluster.wait_joined()
        load.finish()


@pytest.mark.parametrize("stall", [False, True], ids=["closed", "silent"])
def test_a_cluster_survives_losing_two_of_seven_nodes(cluster: LiveCluster, stall: bool) -> None:
    ids = cluster.ids
    few, many = cluster.nodes[:2], cluster.nodes[2:]
    with load_on(cluster) as load:
        loaded(load, cluster, 3)
        cluster.proxy.split(range(2), range(2, COUNT), stall=stall)
        for node in few:
            refuses(node, 3)
        cluster.wait_failing(ids[:2], many)
        cluster.wait_failing(ids[2:], few)
        refuses(few[0], 3)
        goes_on(few[0], copies=2)
        goes_on(*many, copies=3)
        load.wait_confirmed(100)
        cluster.proxy.heal()
        cluster.wait_joined()
        load.wait_confirmed(50)
        assert set(load.finish().refused) <= {"NOREPL"}


def test_both_halves_go_on_with_as_many_copies_as_they_can_hold(cluster: LiveCluster) -> None:
    ids = cluster.ids
    left, right = cluster.nodes[:3], cluster.nodes[3:]
    with load_on(cluster) as load:
        loaded(load, cluster, 3)
        cluster.proxy.split(range(3), range(3, COUNT))
        cluster.wait_failing(ids[:3], right)
        cluster.wait_failing(ids[3:], left)
        goes_on(*cluster, copies=3)
        refuses(left[0], 4)
        goes_on(right[0], copies=4)
        load.wait_confirmed(100)
        cluster.proxy.heal()
        cluster.wait_joined()
        load.finish()


def test_a_cluster_survives_a_node_that_nobody_hears(cluster: LiveCluster) -> None:
    ids = cluster.ids
    mute, others = cluster[0], cluster.nodes[1:]
    with load_on(cluster) as load:
        loaded(load, cluster, 3)
        cluster.proxy.mute(0)
        refuses(mute, 2)
        cluster.wait_failing(ids[:1], others)
        goes_on(*others, copies=3)
        load.wait_confirmed(100)
        cluster.proxy.heal()
        cluster.wait_joined()
        load.finish()


def test_a_cluster_survives_a_ring_in_which_each_node_reaches_two(cluster: LiveCluster) -> None:
    with load_on(cluster) as load:
        loaded(load, cluster, 3)
        cluster.proxy.ring()
        load.wait_confirmed(100)
        # Opposite nodes cannot talk; the neighbours of each node can hold its copies.
        goes_on(*cluster, copies=3)
        cluster.proxy.heal()
        cluster.wait_joined()
        load.finish()


def test_a_cluster_survives_links_that_come_and_go(cluster: LiveCluster) -> None:
    with load_on(cluster) as load:
        loaded(load, cluster, 3)
        for a in range(COUNT):
            cluster.proxy.cut(a, (a + 1) % COUNT)
            cluster.proxy.stall((a + 2) % COUNT, a)
            load.wait_confirmed(10)
            cluster.proxy.heal()
        cluster.wait_joined()
        load.finish()


def test_slow_links_only_make_it_slower(cluster: LiveCluster) -> None:
    with load_on(cluster) as load:
        for a in range(COUNT):
            for b in range(COUNT):
                cluster.proxy.delay(a, b, 0.05 * ((a + b) % 3))
        loaded(load, cluster, 3)
        ledger = load.finish()
        assert not ledger.refused
