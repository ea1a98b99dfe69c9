"""Real nodes that die, are killed under load, and are restarted one after another."""

from pathlib import Path

import pytest

from tests.support.harness import wait_until
from tests.support.live_cluster import LiveCluster, Member, live_cluster
from tests.support.live_helpers import add_job
from tests.support.live_load import ONCE, Load, load_on

AOF_OFF = ("--appendonly", "no")
AOF_ALWAYS = ("--appendonly", "yes", "--appendfsync", "always")


def take(node: Member, queue: str = "q") -> list[bytes]:
    """Wait for jobs with GETJOB at ``node``; return their IDs."""
    jobs = node.ask("GETJOB", "FROM", queue)
    return [job[1] for job in jobs] if isinstance(jobs, list) else []


@pytest.mark.parametrize("last", [0, 1, 2], ids=["where added", "first copy", "second copy"])
def test_the_last_of_three_nodes_delivers(tmp_path: Path, last: int) -> None:
    with live_cluster(tmp_path, 3) as cluster:
        ids = [
            add_job(cluster[0].wire(), "q", str(n), "REPLICATE", 3, "RETRY", 1).encode()
            for n in range(10)
        ]
        # One is with a consumer that never comes back.
        assert take(cluster[0]) == [ids[0]]
        for node in cluster:
            if node.index != last:
                node.kill()
        wire = cluster[last].wire()
        found: set[bytes] = set()

        def all_found() -> bool:
            jobs = wire("GETJOB", "NOHANG", "COUNT", 10, "FROM", "q")
            found.update(job[1] for job in jobs or [])
            return found == set(ids)

        wait_until(all_found)
        assert wire("ACKJOB", *ids) == 10


def test_of_seven_nodes_the_last_holder_delivers_to_any_other(tmp_path: Path) -> None:
    with live_cluster(tmp_path, 7) as cluster:
        id = add_job(cluster[0].wire(), "q", "body", "REPLICATE", 3, "RETRY", 1).encode()
        holders = cluster.holders(id)
        assert len(holders) >= 3  # more if a copy was not confirmed within 50 ms
        others = [node for node in cluster if node not in holders]
        consumer = others[0].wire()
        for node in holders[:-1]:
            node.kill()
        consumer.send("GETJOB", "FROM", "q")
        assert consumer.read() == [[b"q", id, b"body"]]
        others[1].ask("ACKJOB", id)
        # The records of the acknowledgement are kept for the dead nodes.
        for node in holders[:-1]:
            node.start()
        cluster.wait_empty()


def loaded(load: Load, cluster: LiveCluster, copies: int) -> None:
    """Start producers and consumers at all nodes."""
    load.consume(cluster)
    load.produce(cluster, "REPLICATE", copies, pause=0.02)
    load.produce(cluster, "REPLICATE", copies, "DELAY", 1, pause=0.02)
    load.produce(cluster, queue=ONCE, pause=0.05)
    load.wait_confirmed(100)


@pytest.mark.parametrize(
    ("options", "copies"),
    [(AOF_OFF, 2), (AOF_OFF, 3), (AOF_ALWAYS, 2)],
    ids=["memory, 2 copies", "memory, 3 copies", "file, 2 copies"],
)
def test_nothing_confirmed_is_lost_while_nodes_are_killed_in_turn(
    tmp_path: Path, options: tuple[str, ...], copies: int
) -> None:
    with live_cluster(tmp_path, 3, *options) as cluster, load_on(cluster) as load:
        loaded(load, cluster, copies)
        for node in cluster:
            node.kill()
            if copies == 2:
                load.wait_confirmed(100)  # the other two go on
            node.start()
            load.wait_confirmed(100)
            if options == AOF_OFF:
                # Jobs with one copy left have to be done before that node dies too.
                load.wait_done()
        load.finish()


def test_a_loaded_cluster_killed_as_a_whole_loses_nothing_that_is_in_its_files(
    tmp_path: Path,
) -> None:
    with live_cluster(tmp_path, 3, *AOF_ALWAYS) as cluster, load_on(cluster) as load:
        loaded(load, cluster, 2)
        for node in cluster:
            node.process.kill()
        for node in cluster:
            node.kill()
            node.spawn()
        for node in cluster:
            node.wait_ready()
        load.wait_confirmed(100)
        load.finish()


def test_one_node_after_the_other_of_a_loaded_cluster_is_restarted(tmp_path: Path) -> None:
    with (
        live_cluster(tmp_path, 3, "--appendonly", "yes") as cluster,
        load_on(cluster) as load,
    ):
        ids = cluster.ids
        loaded(load, cluster, 2)
        for node in cluster:
            assert node.stop() == 0
            node.start()
            cluster.wait_joined()
            load.wait_confirmed(100)
        load.finish()
        assert cluster.ids == ids


@pytest.mark.pure
@pytest.mark.parametrize("options", [AOF_OFF, AOF_ALWAYS], ids=["memory", "file"])
def test_the_restart_command_goes_round_a_loaded_cluster(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    with live_cluster(tmp_path, 3, *options) as cluster, load_on(cluster) as load:
        ids = cluster.ids
        loaded(load, cluster, 3)
        for node in cluster:
            before = node.info("server")["run_id"]
            wire = node.wire()
            wire.send("RESTART")
            assert wire.closed()
            node.wait_ready()
            assert node.info("server")["run_id"] != before
            cluster.wait_joined()
            load.wait_confirmed(100)
        load.finish()
        assert cluster.ids == ids
