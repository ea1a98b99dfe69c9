"""Batches continue while nodes restart and are killed."""

import os

import pytest

from disque_spark.leases.queue import QueuePlace
from packages.spark.tests.support.lease_reader import Reader, add, jobs_at, place_at
from tests.support.harness import (
    PATIENT,
    ClusterFactory,
    LiveNode,
    NodeFactory,
    start_process,
    wait_for_ping,
    wait_until,
)


def test_a_node_that_restarts_in_the_middle_of_a_batch_loses_nothing(
    disque_server: NodeFactory,
) -> None:
    files = ("--appendonly", "yes", "--appendfsync", "always")
    node = disque_server(*files)
    reader = Reader(place_at(node), [f"127.0.0.1:{node.port}"])
    options = ("--port", str(node.port), "--bind", "127.0.0.1", *files)
    again = None
    try:
        add(node, 120)
        one = reader.planner.latest(reader.planner.initial())
        found = reader.read(one)
        node.kill()
        assert reader.planner.latest(one) == one  # nothing to take, and nobody to tell
        again = start_process(node.directory, node.port, *options)
        assert wait_for_ping(again)
        reader.planner.finish(one)
        assert jobs_at(again) == 20
        wait_until(lambda: again.ask("QLEN", "q") == 20)
        reader.again()  # it would avoid the node for some seconds
        two = reader.planner.latest(one)
        found += reader.read(two)
        reader.planner.finish(two)
        assert sorted(found) == sorted(f"body {n}" for n in range(120))
        assert jobs_at(again) == 0
    finally:
        reader.planner.close()
        if again is not None:
            again.close()


@pytest.mark.skipif(
    not os.environ.get("DISQUE_SPARK_LONG"), reason="waits for nodes; set DISQUE_SPARK_LONG"
)
def test_batches_go_on_while_one_node_after_the_other_is_killed_and_comes_back(
    cluster: ClusterFactory,
) -> None:
    """Leases in Disque: planned, leased, finished and read again with any one of three nodes
    down."""
    files = ("--appendonly", "yes", "--appendfsync", "always")
    nodes = cluster(3, *files)
    addresses = [f"127.0.0.1:{node.port}" for node in nodes]
    reader = Reader(QueuePlace("test", tuple(addresses)), addresses, heartbeat=1.0)
    restarted: list[LiveNode] = []
    found: dict[int, list[str]] = {}
    expected: set[str] = set()
    offset = planned = reader.planner.initial()

    def is_planned() -> bool:
        nonlocal planned
        planned = reader.planner.latest(offset)
        return planned != offset

    try:
        for at in range(3):
            node = nodes[at]
            for n in range(30):
                expected.add(f"body {at}.{n}")
                nodes[n % 3].ask("ADDJOB", "q", f"body {at}.{n}", 0, "REPLICATE", 2, "RETRY", 2)
            wait_until(is_planned)
            if at == 1:
                found[planned.seq] = reader.read(planned)
            node.kill()
            reader.again()  # the driver, too
            before = planned
            wait_until(is_planned)
            assert planned == before
            rows = reader.read(planned)
            assert found.setdefault(planned.seq, rows) == rows
            reader.planner.finish(planned)
            offset = planned
            directory, port = node.log.parent, node.port
            options = ("--port", str(port), "--bind", "127.0.0.1", *PATIENT, *files)
            restarted.append(start_process(directory, port, *options))
            assert wait_for_ping(restarted[-1])
            nodes[at] = restarted[-1]
            wait_until(lambda: all(node.sees(3) for node in nodes))

        def all_is_done() -> bool:
            nonlocal offset
            if is_planned():
                found[planned.seq] = reader.read(planned)
                offset = planned
            return not any(jobs_at(node) for node in nodes)

        wait_until(all_is_done)
    finally:
        reader.planner.close()
        for node in restarted:
            node.close()
    assert {body for rows in found.values() for body in rows} == expected
