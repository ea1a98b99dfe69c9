"""A worker whose node leaves its cluster, or goes away and comes back."""

import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.harness import (
    ClusterFactory,
    free_port,
    start_process,
    wait_for_ping,
    wait_until,
)
from tests.support.live_cluster import Member, live_cluster
from tests.support.worker_rig import Worker, twice, worker_rig


def test_a_worker_continues_at_another_node_when_its_own_leaves(
    cluster: ClusterFactory, tmp_path: Path
) -> None:
    first, second = cluster(2)
    with worker_rig(tmp_path, first.port) as rig:
        worker = rig.start()
        worker.serves()
        rig.add("gate", "a")
        rig.noted("begun")
        assert first.ask("CLUSTER", "LEAVING", "yes") == b"OK"
        rig.port = second.port
        rig.add_all("quick", [[n] for n in range(10)])
        rig.noted("quick", count=10)
        rig.open("a")
        rig.noted("ended")
        wait_until(lambda: worker.status().get("in_hand") == 0)
        assert worker.stop() == 0
        assert len(rig.notes("begun")) == 1
        assert not twice(rig.notes("quick"))


def test_tasks_continue_while_the_node_is_away_and_are_acknowledged_when_it_is_back(
    tmp_path: Path,
) -> None:
    port = free_port()
    options = ("--port", str(port), "--bind", "127.0.0.1", "--appendonly", "yes")
    node = start_process(tmp_path, port, *options)
    try:
        assert wait_for_ping(node)
        with worker_rig(tmp_path, port) as rig:
            worker = rig.start("--concurrency", "3")
            rig.add_all("gate", [["a"]] * 3)
            rig.noted("begun", count=3)
            wait_until(lambda: worker.status().get("in_hand") == 3)
            node.kill()
            rig.open("a")
            rig.noted("ended", count=3)
            # Their slots are free, although no node has heard of their ends.
            wait_until(lambda: worker.status().get("in_hand") == 0)
            node = start_process(tmp_path, port, *options)
            assert wait_for_ping(node)
            rig.add("quick", 1)
            rig.noted("quick")
            with rig.client() as client:
                wait_until(lambda: not list(client.jscan(queue="mail")))
            assert worker.stop() == 0
            assert len(rig.notes("begun")) == 3
    finally:
        node.close()


def stop_and_start(node: Member) -> None:
    assert node.stop() == 0
    node.start()


def restart(node: Member) -> None:
    wire = node.wire()
    wire.send("RESTART")
    assert wire.closed()
    node.wait_ready()


@pytest.mark.load  # A node that needs longer than RETRY to come back is one too many.
@pytest.mark.parametrize("again", [stop_and_start, restart])
def test_tasks_run_once_while_all_nodes_restart_one_after_the_other(
    again: Callable[[Member], None], tmp_path: Path
) -> None:
    with (
        live_cluster(tmp_path, 3, "--appendonly", "yes") as cluster,
        worker_rig(tmp_path, cluster[0].port) as rig,
        ExitStack() as workers,
    ):
        nodes = f"disque://{','.join(f'127.0.0.1:{node.port}' for node in cluster)}"
        words = ("shop:app", "--app-dir", str(tmp_path), "--status-file", "status")
        for number in range(2):
            directory = tmp_path / f"worker-{number}"
            directory.mkdir()
            worker = Worker(directory, nodes, (*words, "--concurrency", "6"))
            workers.callback(worker.close)
            worker.serves()
        # They take three times as long as it takes until nodes that hear nothing of the worker
        # give a job to another one. Of each, a node has no copy.
        rig.add_all("hold", [[n, 9] for n in range(10)], retry=3, replicate=2)
        rig.noted("hold", count=10)
        for node in cluster:
            again(node)
            cluster.wait_joined()
        rig.noted("held", count=10)
        assert len(rig.notes("hold")) == 10


def test_a_process_that_starts_while_the_node_is_away_waits_for_it(tmp_path: Path) -> None:
    port = free_port()
    options = ("--port", str(port), "--bind", "127.0.0.1")
    node = start_process(tmp_path, port, *options)
    try:
        assert wait_for_ping(node)
        with worker_rig(tmp_path, port) as rig:
            worker = rig.start("--wait", "0", "--restarts", "1")
            (first,) = worker.serves()
            node.kill()
            worker.signal(signal.SIGHUP)
            wait_until(lambda: worker.pids("starting"))
            (second,) = worker.pids("starting")
            node = start_process(tmp_path, port, *options)
            wait_until(lambda: worker.pids() == [second])
            assert first != second
            rig.add("quick", 1)
            rig.noted("quick")
            assert worker.stop() == 0
    finally:
        node.close()
