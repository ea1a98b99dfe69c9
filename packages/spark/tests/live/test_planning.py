"""Which node's turn it is in a read, and what is acknowledged when."""

import pyarrow as pa
import pytest

from disque_spark.client import RefusedError
from disque_spark.leases.planner import Offset
from disque_spark.leases.store import LeaseError, PartitionPlan
from disque_trio.respclient.login import Login
from packages.spark.tests.support.lease_model import ModelPlace
from packages.spark.tests.support.lease_reader import SCHEMA, Reader, add, jobs_at, place_at
from tests.support.harness import (
    ClusterFactory,
    LiveNode,
    NodeFactory,
    wait_until,
)
from tests.support.scripted_node import ScriptedNode


def test_nothing_is_acknowledged_before_its_batch_is_the_start(
    reader: Reader, node: LiveNode
) -> None:
    add(node, 150)
    start = reader.planner.initial()
    one = reader.planner.latest(start)
    assert len(reader.read(one)) == 100
    assert reader.planner.latest(start) == one
    assert jobs_at(node) == 150
    two = reader.planner.latest(one)
    assert jobs_at(node) == 50
    assert len(reader.read(two)) == 50
    assert reader.planner.latest(two) == two
    assert jobs_at(node) == 0


def test_a_batch_reads_the_same_after_a_restart_and_with_a_new_checkpoint(
    reader: Reader, node: LiveNode
) -> None:
    add(node, 20)
    start = reader.planner.initial()
    one = reader.planner.latest(start)
    jobs = reader.read(one)
    add(node, 20, first=20)
    reader.again()
    assert reader.planner.initial() == start
    assert reader.planner.latest(start) == one
    assert reader.read(one) == jobs


def test_jobs_that_no_task_has_read_are_not_acknowledged_but_go_back(
    reader: Reader, node: LiveNode
) -> None:
    """A sink may skip a whole batch; the driver itself leased these jobs."""
    start = reader.planner.initial()
    assert reader.planner.latest(start) == start
    add(node, 4)
    taken = node.ask("GETJOB", "COUNT", 4, "FROM", "q")
    assert isinstance(taken, list)
    wait_until(lambda: node.ask("QLEN", "q") == 4)
    one = Offset(1, start.log)
    reader.planner.close()
    log = reader.place.open()
    share = PartitionPlan(reader.options.nodes[0], 4)
    ids = [job[1].decode() for job in taken]
    rows = {"id": ids, "body": [b"x"] * 4}
    log.begin(1, [share], pa.RecordBatch.from_pydict(rows))
    log.close()
    reader.again()
    reader.planner.finish(one)
    assert node.ask("QLEN", "q") == 4


def test_a_batch_that_another_query_has_read_counts_when_it_is_read_again(
    reader: Reader, node: LiveNode
) -> None:
    """A file sink that has seen the numbers of the new query's batches skips these."""
    add(node, 4)
    one = reader.planner.latest(reader.planner.initial())
    assert len(reader.read(one)) == 4
    reader.again()
    begin = reader.planner.initial()  # as with a new checkpoint
    assert reader.planner.latest(begin) == one
    reader.planner.finish(one)
    assert node.ask("QLEN", "q") == 4


def test_jobs_of_nodes_out_of_reach_come_through_the_others(cluster: ClusterFactory) -> None:
    near, far = cluster(2)
    reader = Reader(place_at(near), [f"127.0.0.1:{near.port}"])
    try:
        add(far, 30)
        found: list[str] = []
        offset = reader.planner.initial()

        def all_came() -> bool:
            nonlocal offset
            latest = reader.planner.latest(offset)
            if latest != offset:
                found.extend(reader.read(latest))
            offset = latest
            return len(set(found)) == 30

        wait_until(all_came)
    finally:
        reader.planner.close()


def test_a_password_is_used_for_all_that_is_asked(disque_server: NodeFactory) -> None:
    node = disque_server("--requirepass", "secret")
    wire = node.wire()
    wire("AUTH", "secret")
    wire("ADDJOB", "q", "body 0", 0)
    address = f"127.0.0.1:{node.port}"
    login = Login(password="secret")
    reader = Reader(place_at(node)._replace(login=login), [address], login=login)
    try:
        one = reader.planner.latest(reader.planner.initial())
        assert reader.read(one) == ["body 0"]
        reader.planner.finish(one)
        assert wire("JSCAN", 0, "BUSYLOOP", "QUEUE", "q", "STATE", "active") == [b"0", []]
    finally:
        reader.planner.close()
    other = Reader(ModelPlace(), [address])
    try:
        with pytest.raises(RefusedError, match="NOAUTH"):
            other.planner.latest(other.planner.initial())
    finally:
        other.planner.close()
    with pytest.raises(RefusedError, match="NOAUTH"):
        place_at(node).open()


def test_the_offset_of_other_leases_acknowledges_nothing(reader: Reader, node: LiveNode) -> None:
    add(node, 20)
    one = reader.planner.latest(reader.planner.initial())
    reader.read(one)
    other = Offset(one.seq + 100, "other leases")
    assert reader.planner.plans(other) == []
    assert reader.planner.latest(other) == one
    assert jobs_at(node) == 20


def test_a_batch_begins_although_the_node_of_its_first_jobs_is_lost_meanwhile() -> None:
    job = {"id": "D-1", "queue": "q", "body": b"x", "nacks": 0, "additional_deliveries": 0}
    first = pa.RecordBatch.from_pylist([{**job, "node": "n", "ctime": None}], schema=SCHEMA)
    with ScriptedNode(lambda request: None) as node:
        reader = Reader(ModelPlace(), [node.address])
        planner = reader.planner
        planner._nodes.lost(node.address)
        offset = planner._begin([], planner.initial(), node.address, first)
        assert reader.read(offset) == ["x"]
        planner.close()


def test_a_query_that_begins_without_jobs_has_an_empty_batch(
    reader: Reader, node: LiveNode
) -> None:
    start = reader.planner.initial()
    assert reader.planner.latest(start) == start
    # Spark runs its first batch even if there is nothing new, and again after a crash.
    assert reader.read(start) == []
    reader.again()
    assert reader.read(start) == []
    add(node, 3)
    one = reader.planner.latest(start)
    assert len(reader.read(one)) == 3
    assert reader.planner.latest(one) == one
    assert jobs_at(node) == 0
    # A query with another checkpoint begins after what is finished.
    begin = reader.planner.initial()
    assert reader.planner.latest(begin) == begin
    assert reader.read(begin) == []
    assert Offset.of(begin.json()) == begin


def test_an_empty_first_batch_is_not_one_whose_jobs_are_acknowledged(
    reader: Reader, node: LiveNode
) -> None:
    """A checkpoint went back to before its first batch, which was not empty."""
    add(node, 3)
    one = reader.planner.latest(reader.planner.initial())
    reader.read(one)
    reader.planner.finish(one)
    reader.again()
    assert reader.planner.initial().seq == one.seq
    with pytest.raises(LeaseError, match="out of date"):
        reader.read(one)


def test_a_checkpoint_that_went_back_by_whole_batches_is_refused(
    reader: Reader, node: LiveNode
) -> None:
    """Its next batch would have a number that sinks have seen, with other jobs."""
    offsets = [reader.planner.initial()]
    for _ in range(3):
        add(node, 3)
        offsets.append(reader.planner.latest(offsets[-1]))
        reader.read(offsets[-1])
    reader.planner.finish(offsets[-1])
    for old in offsets[:-1]:
        with pytest.raises(LeaseError, match="out of date"):
            reader.planner.latest(old)
    assert reader.planner.latest(offsets[-1]) == offsets[-1]


def test_a_checkpoint_that_went_back_does_not_repeat_a_batch_without_its_jobs(
    reader: Reader, node: LiveNode
) -> None:
    add(node, 20)
    one = reader.planner.latest(reader.planner.initial())
    reader.read(one)
    assert reader.planner.latest(one) == one
    with pytest.raises(LeaseError, match="out of date"):
        reader.planner.plans(one)


def test_without_a_node_nothing_comes_and_acknowledging_is_put_off(node: LiveNode) -> None:
    reader = Reader(ModelPlace(), [f"127.0.0.1:{node.port}"])
    add(node, 20)
    one = reader.planner.latest(reader.planner.initial())
    reader.read(one)
    node.kill()
    assert reader.planner.latest(one) == one
    assert reader.to_acknowledge() == [1]
    reader.planner.close()


def test_a_job_that_comes_while_nothing_is_there_starts_a_batch(
    reader: Reader, node: LiveNode
) -> None:
    start = reader.planner.initial()
    assert reader.planner.latest(start) == start
    add(node, 1)
    one = reader.planner.latest(start)
    assert reader.read(one) == ["body 0"]


def test_jobs_of_a_paused_queue_are_no_reason_for_batches(reader: Reader, node: LiveNode) -> None:
    add(node, 5)
    node.ask("PAUSE", "q", "out")
    start = reader.planner.initial()
    assert reader.planner.latest(start) == start
    node.ask("PAUSE", "q", "in")
    one = reader.planner.latest(start)
    assert len(reader.read(one)) == 5


def test_a_queue_that_is_paused_after_the_plan_gives_an_empty_batch(
    reader: Reader, node: LiveNode
) -> None:
    add(node, 5)
    one = reader.planner.latest(reader.planner.initial())
    node.ask("PAUSE", "q", "all")
    assert reader.read(one) == []
    assert reader.planner.latest(one) == one
    node.ask("PAUSE", "q", "none")
    assert len(reader.read(reader.planner.latest(one))) == 5


def test_a_queue_that_others_empty_after_the_plan_gives_an_empty_batch(
    reader: Reader, node: LiveNode
) -> None:
    ids = add(node, 5)
    one = reader.planner.latest(reader.planner.initial())
    node.ask("ACKJOB", *ids)
    assert reader.read(one) == []
    assert reader.planner.latest(one) == one


def test_what_a_leaving_node_has_takes_no_place_in_batches(disque_server: NodeFactory) -> None:
    staying, leaving = disque_server(), disque_server()
    add(staying, 2)
    add(leaving, 500)
    leaving.ask("CLUSTER", "LEAVING", "yes")
    nodes = [f"127.0.0.1:{node.port}" for node in (leaving, staying)]
    reader = Reader(place_at(staying), nodes)
    try:
        one = reader.planner.latest(reader.planner.initial())
        assert len(reader.read(one)) == 2
    finally:
        reader.planner.close()


def test_the_report_shows_how_many_jobs_are_behind_a_batch(reader: Reader, node: LiveNode) -> None:
    add(node, 150)
    start = reader.planner.initial()
    one = reader.planner.latest(start)
    told = reader.planner.report(one)
    assert told["seq"] == one.seq
    assert told["description"] == f"disque: q at {reader.options.nodes[0]}"
    (queue,) = told["queues"].values()  # type: ignore[attr-defined]
    assert (queue["jobs"], queue["behind"]) == (150, 50)
    reader.read(one)
    reader.again()
    assert reader.planner.latest(start) == one  # it was planned before
    (queue,) = reader.planner.report(one)["queues"].values()  # type: ignore[attr-defined]
    assert (queue["jobs"], queue["behind"]) == (50, 50)
    two = reader.planner.latest(one)
    reader.read(two)
    assert reader.planner.latest(two) == two  # nothing is left
    (queue,) = reader.planner.report(two)["queues"].values()  # type: ignore[attr-defined]
    assert queue == {"jobs": 0, "behind": 0, "oldestJobAge": 0.0}
