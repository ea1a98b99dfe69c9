"""Two nodes in a cluster with one of C Disque: DISQUE_C names its program, or these are skipped."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from disque_trio.client.sync import connect
from tests.support.harness import HANG_SECONDS, wait_until
from tests.support.live_cluster import HOST, LiveCluster, Member
from tests.support.live_load import load_on

PROGRAM = os.environ.get("DISQUE_C", "")
FILE = ("--appendonly", "yes", "--appendfsync", "always")
MANY = 200
PASSED = 7  # s: several retry times of jobs that stay where they are
RETRY = 2

pytestmark = pytest.mark.skipif(not PROGRAM, reason="DISQUE_C does not name a node of C Disque")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LiveCluster]:
    """The last node is the one of C Disque."""
    cluster = LiveCluster(tmp_path, 3, *FILE, node_timeout=2000)
    cluster[2].program, cluster[2].is_c = (PROGRAM,), True
    try:
        cluster.start()
        wait_until(lambda: takes_copies(cluster[2]))
        cluster.clean()
        yield cluster
    finally:
        cluster.close()


def takes_copies(node: Member) -> bool:
    """Whether ``node`` adds a job with three copies. One of C Disque that has just met others does
    not."""
    return isinstance(node.ask("ADDJOB", "first", "", 1_000, "REPLICATE", 3), bytes)


def test_no_queue_is_best_at_a_c_node_and_its_clients_work_there(cluster: LiveCluster) -> None:
    names = [f"queue-{number}" for number in range(50)]
    for node in (cluster[0], cluster[1]):
        owners = node.ask("QOWNER", *names)
        assert isinstance(owners, list)
        assert {id for id, _, _ in owners} == {cluster[0].id, cluster[1].id}
    with connect([f"{HOST}:{cluster[2].port}"]) as client:
        ids = client.add_many("q", [str(number) for number in range(MANY)], replicate=2)
        taken: Counter[str] = Counter()
        while set(taken) != set(ids):
            jobs = client.get("q", count=MANY, timeout=HANG_SECONDS)
            taken.update(job.id for job in jobs)
            client.ack(*[job.id for job in jobs])
    assert max(taken.values()) == 1
    cluster.wait_empty()


def test_jobs_go_from_every_node_to_every_other_one(cluster: LiveCluster) -> None:
    with load_on(cluster) as load:
        for node, other in ((0, 1), (1, 0), (0, 2), (2, 0)):
            queue = f"{node}-{other}"
            words = ("REPLICATE", 2, "RETRY", 600)
            load.produce([cluster[node]], *words, queue=queue, pause=0.02, count=20)
            load.consume([cluster[other]], (queue,), count=100, let_down=0)
        load.wait_confirmed(2_000)
        assert load.finish().again.total() == 0


def test_nothing_is_lost_if_nodes_of_both_kinds_are_killed(cluster: LiveCluster) -> None:
    with load_on(cluster) as load:
        load.consume(cluster)
        load.produce(cluster, "REPLICATE", 2, timeout=1000, pause=0.02, count=5)
        for node in cluster:
            load.wait_confirmed(100)
            node.kill()
            load.wait_confirmed(100)
            node.start()
        cluster.wait_joined()
        load.finish()


def test_jobs_that_stay_are_in_one_queue_whoever_holds_them(cluster: LiveCluster) -> None:
    with load_on(cluster) as load:
        options = ("REPLICATE", 3, "RETRY", RETRY)
        count = load.add(cluster, MANY, "idle", *options)
        assert count == 3 * MANY
        cluster[0].ask("ADDJOB", "late", "", 0, "DELAY", PASSED)
        [[_, late, _]] = cluster[0].ask("GETJOB", "FROM", "late")  # type: ignore[misc]
        cluster[0].ask("ACKJOB", late)
        wait_until(lambda: sum(int(str(node.ask("QLEN", "idle"))) for node in cluster) == count)
        load.consume(cluster, ("idle",))
        load.finish()
