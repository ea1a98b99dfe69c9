"""What other nodes have for a node that stops cleanly is not lost with it."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.harness import wait_until
from tests.support.live_cluster import Member, live_cluster
from tests.support.live_helpers import add_job, packed
from tests.support.live_load import ONCE, load_on

ON_ITS_WAY = 0.1  # s
JOBS, LOOKS = 3_000, 700  # for a group that takes some seconds


def terminate(node: Member) -> None:
    assert node.stop() == 0
    node.start()


def shut_down(node: Member) -> None:
    node.wire().send("SHUTDOWN")
    assert node.process.wait() == 0
    node.start()


def restart(node: Member) -> None:
    wire = node.wire()
    wire.send("RESTART")
    assert wire.closed()
    node.wait_ready()


@pytest.mark.parametrize(
    ("stop", "file"),
    [(terminate, "yes"), (shut_down, "yes"), (restart, "yes"), (restart, "no")],
    ids=["SIGTERM", "SHUTDOWN", "RESTART", "RESTART without a file"],
)
def test_a_job_on_its_way_to_a_node_that_stops_is_there_when_it_is_back(
    tmp_path: Path, stop: Callable[[Member], None], file: str
) -> None:
    with live_cluster(tmp_path, 2, "--appendonly", file, proxied=True) as cluster:
        giver, stopping = cluster
        cluster.proxy.delay(giver.index, stopping.index, ON_ITS_WAY)
        id = add_job(giver.wire(), "q", "body", "RETRY", 0, "REPLICATE", 1).encode()
        assert stopping.ask("GETJOB", "NOHANG", "FROM", "q") is None
        wait_until(lambda: giver.ask("QLEN", "q") == 0)  # it has given the job away
        stop(stopping)
        cluster.wait_joined()
        cluster.proxy.heal()
        assert stopping.ask("GETJOB", "TIMEOUT", 5000, "FROM", "q") == [[b"q", id, b"body"]]


def test_a_node_that_stops_during_a_long_group_ends_it_and_takes_in_what_came_meanwhile(
    tmp_path: Path,
) -> None:
    with live_cluster(tmp_path, 2, "--appendonly", "yes", proxied=True) as cluster:
        giver, stopping = cluster
        looking = packed("JSCAN", "BUSYLOOP", "STATE", "acked")
        adding = packed("ADDJOB", "r", "body", 0, "REPLICATE", 1)
        wire = stopping.wire()
        wire.sock.sendall(packed("ADDJOB", "s", "body", 0, "REPLICATE", 1) * JOBS)
        for _ in range(JOBS):
            wire.read()
        wire.sock.sendall(packed("MULTI") + adding + looking * LOOKS + adding)
        assert [wire.read() for _ in range(LOOKS + 3)] == [b"OK"] + [b"QUEUED"] * (LOOKS + 2)
        cluster.proxy.delay(giver.index, stopping.index, ON_ITS_WAY)
        id = add_job(giver.wire(), "q", "body", "RETRY", 0, "REPLICATE", 1).encode()
        assert stopping.ask("GETJOB", "NOHANG", "FROM", "q") is None
        wait_until(lambda: giver.ask("QLEN", "q") == 0)  # it has given the job away
        wire.send("EXEC")
        assert stopping.ask("PING") == b"PONG"  # it has read the other request as well
        terminate(stopping)
        replies = wire.read()
        assert isinstance(replies, list)
        assert len(replies) == LOOKS + 2
        cluster.wait_joined()
        cluster.proxy.heal()
        assert stopping.ask("GETJOB", "TIMEOUT", 5000, "FROM", "q") == [[b"q", id, b"body"]]
        assert stopping.ask("QLEN", "r") == 2


@pytest.mark.load
def test_clean_stops_under_load_lose_no_job_that_is_delivered_at_most_once(tmp_path: Path) -> None:
    with live_cluster(tmp_path, 3, "--appendonly", "yes") as cluster, load_on(cluster) as load:
        load.consume(cluster)
        load.produce(cluster, pause=0.02)
        load.produce(cluster, queue=ONCE, pause=0.002)
        stops = itertools.product(cluster, (terminate, restart))
        for node, stop in stops:
            wanted = len(load.ledger.confirmed_once) + 200
            wait_until(lambda wanted=wanted: len(load.ledger.confirmed_once) >= wanted)
            stop(node)
            cluster.wait_joined()
        load.stop_producing()
        wait_until(lambda: load.ledger.confirmed_once <= load.ledger.once)
        load.finish()
