"""Leases in real nodes: what is in the queue, who sees it, and the effect of losing a node."""

import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa
import pytest

from disque_spark.client import WireError
from disque_spark.datasources.queues import read_options
from disque_spark.leases.cells import LIFE, QueueCells
from disque_spark.leases.keeper import ack, holding
from disque_spark.leases.queue import QueuePlace
from disque_spark.leases.store import LeaseError, PartitionPlan
from tests.support import ROOT
from tests.support.harness import ClusterFactory, LiveNode, NodeFactory, join, wait_until
from tests.support.scripted_node import ScriptedNode

SCHEMA = pa.schema([pa.field("id", pa.string()), pa.field("body", pa.binary(), nullable=False)])


def at(*nodes: LiveNode) -> tuple[str, ...]:
    return tuple(f"127.0.0.1:{node.port}" for node in nodes)


def rows(*ids: str, body: bytes = b"x") -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": list(ids), "body": [body] * len(ids)}, schema=SCHEMA)


@pytest.fixture
def cells(node: LiveNode) -> Iterator[QueueCells]:
    with closing(QueueCells("test", at(node), failover=0)) as cells:
        yield cells


def test_a_cell_is_written_once(cells: QueueCells) -> None:
    assert cells.find("a") is None
    one = cells.put("a", b"one")
    assert one.body == b"one"
    assert cells.put("a", b"two") == one
    assert cells.find("a") == one
    assert cells.find("b") is None
    page = cells.add(b"page")
    assert cells.read([page, page]) == [b"page", b"page"]
    assert {(cell.key, cell.body) for cell in cells.scan()} == {("a", b"one"), ("", b"page")}
    cells.drop([one.id, page])
    assert cells.find("a") is None
    assert cells.scan() == []
    with pytest.raises(LeaseError, match="no longer on any node"):
        cells.read([page])


def test_a_cell_of_some_seconds_ends(cells: QueueCells) -> None:
    cells.put("a", b"one", seconds=1)
    wait_until(lambda: cells.find("a") is None)


def test_nobody_is_given_a_lease_or_sees_its_queue(cells: QueueCells, node: LiveNode) -> None:
    cells.put("a", b"one")
    cells.add(b"page")
    assert node.ask("GETJOB", "NOHANG", "PATTERN", "FROM", "*") is None
    assert node.ask("GETJOB", "NOHANG", "FROM", "spark-leases/test") is None
    assert node.ask("QLEN", "spark-leases/test") == 0


def test_another_node_can_take_over_and_extend_a_batch(cluster: ClusterFactory) -> None:
    nodes = cluster(3)
    place = QueuePlace("test", at(*nodes))
    log = place.open()
    log.begin(1, [PartitionPlan(at(nodes[0])[0], 9)] * 2, rows("J-1"))
    nodes[0].kill()
    with closing(place.batch(1, log.owner, at(nodes[0])[0])) as batch:
        assert batch.jobs(1) is None
        with closing(batch.draft(SCHEMA)) as draft:
            draft.append(rows("J-2", "J-1"))
            assert draft.publish(1)
    assert [lease.ids for lease in log.leases(1)] == [["J-1"], ["J-2"]]
    log.close()
    with closing(place.open()) as again:
        assert again.identity == log.identity
        assert again.open_batches() == [1]
        assert [(lease.ids, lease.read) for lease in again.leases(1)] == [
            (["J-1"], False),
            (["J-2"], True),
        ]
        again.finish(1)
        again.clear(1)
        assert (again.highest(), again.highest_done()) == (1, 1)
    with closing(place.open()) as third:
        assert (third.open_batches(), third.to_acknowledge(), third.highest()) == ([], [], 1)


def test_all_leases_expire_some_time(node: LiveNode) -> None:
    """What a query leaves that never comes back, and what one leaves that has finished."""
    place = QueuePlace("test", at(node))

    def lives() -> list[int]:
        reply = node.ask("JSCAN", 0, "BUSYLOOP", "QUEUE", "spark-leases/test", "REPLY", "all")
        assert isinstance(reply, list)
        jobs = [dict(zip(job[::2], job[1::2], strict=True)) for job in reply[1]]
        return [job[b"ttl"] for job in jobs if job[b"state"] != b"acked"]

    with closing(place.open()) as log:
        log.begin(1, [PartitionPlan(at(node)[0], 9)], rows("J-1"))
        assert len(lives()) >= 5  # the identity, a lock, a plan, and a page each of ids and rows
        assert max(lives()) <= 2 * LIFE
        log.finish(1)
        log.clear(1)
    assert len(lives()) == 2  # the identity, and the number of the batch
    assert max(lives()) <= 2 * LIFE


def test_a_node_without_extensions_is_named_with_what_there_is_for_it() -> None:
    def answer(request: list[bytes]) -> bytes:
        if request[0] == b"HELLO":
            return b"*2\r\n:1\r\n$2\r\nab\r\n"
        return b"-ERR syntax error\r\n"

    with ScriptedNode(answer) as node, pytest.raises(LeaseError, match="ackOnRead"):
        QueuePlace("test", (node.address,)).open()


def test_too_few_nodes_are_an_error_and_not_an_empty_queue(cluster: ClusterFactory) -> None:
    nodes = cluster(3)
    place = QueuePlace("test", at(*nodes))
    with closing(place.open()) as log:
        log.begin(1, [PartitionPlan(at(nodes[0])[0], 9)], rows("J-1"))
    for node in nodes[:2]:
        node.kill()
    cells = QueueCells("test", at(nodes[2]), failover=0)
    with closing(cells), pytest.raises(WireError, match="too few nodes"):
        cells.scan()


def test_large_bodies_are_asked_for_again(node: LiveNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("disque_spark.leases.rows.ASK_BYTES", 30_000)
    bodies = {node.ask("ADDJOB", "q", b"%d" % n * 5000, 0): b"%d" % n * 5000 for n in range(30)}
    jobs = {bytes(id).decode(): body for id, body in bodies.items() if isinstance(id, bytes)}
    place = QueuePlace("test", at(node))
    with closing(place.open()) as log:
        log.begin(1, [PartitionPlan(at(node)[0], 9)], None)
        with closing(place.batch(1, log.owner, at(node)[0])) as batch:
            assert batch.jobs(0) is None
            with closing(batch.draft(SCHEMA)) as draft:
                small = node.ask("ADDJOB", "q", b"small", 0)
                assert isinstance(small, bytes)
                jobs[small.decode()] = b"small"
                draft.append(
                    pa.RecordBatch.from_pydict(
                        {"id": list(jobs), "body": list(jobs.values())}, schema=SCHEMA
                    )
                )
                assert draft.publish(0)
        with closing(place.batch(1, log.owner, at(node)[0])) as again:
            found = list(again.jobs(0) or ())
        assert {row["id"]: row["body"] for some in found for row in some.to_pylist()} == jobs
        assert [some.schema for some in found] == [SCHEMA] * len(found)
        gone = next(iter(jobs))
        node.ask("DELJOB", gone)
        with closing(place.batch(1, log.owner, at(node)[0])) as again:
            left = [row["id"] for some in again.jobs(0) or () for row in some.to_pylist()]
        assert sorted(left) == sorted(set(jobs) - {gone})


def test_a_queue_of_leases_has_one_user_and_a_killed_one_keeps_no_lock(node: LiveNode) -> None:
    place = QueuePlace("test", at(node))
    code = (
        "import sys; from disque_spark.leases.queue import QueuePlace\n"
        "log = QueuePlace('test', (sys.argv[1],)).open(); print('open', flush=True)\n"
        "sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, *at(node)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        with pytest.raises(LeaseError, match="in use"):
            place.open(seconds=0)
        process.kill()
    with closing(place.open(seconds=0)), pytest.raises(LeaseError, match="in use"):
        place.open(seconds=0)
    place.open(seconds=0).close()


def test_a_place_is_an_option_and_can_be_sent_to_executors(node: LiveNode) -> None:
    options = {"nodes": at(node)[0], "queue": "q", "leaseQueue": "orders"}
    place = read_options(options, batch=False).leases
    assert isinstance(place, QueuePlace)
    assert pickle.loads(pickle.dumps(place)) == place
    with closing(place.open()):
        pass


def test_ack_and_holding_name_a_queue(node: LiveNode) -> None:
    id = node.ask("ADDJOB", "q", "body", 0)
    assert isinstance(id, bytes)
    node.ask("GETJOB", "FROM", "q")
    place = QueuePlace("test", at(node))
    with holding(nodes=at(node), lease_queue="test"), closing(place.open()) as log:
        log.begin(1, [PartitionPlan(at(node)[0], 1)], rows(id.decode()))
        batch = place.batch(1, log.owner, at(node)[0])
        assert batch.jobs(0) is not None
        batch.mark_read(0)
        batch.close()
    assert node.ask("SHOW", id) is None
    assert ack(nodes=at(node), lease_queue="test") == 0


def test_a_cluster_that_becomes_smaller_has_fewer_copies(
    cluster: ClusterFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = cluster(3)
    monkeypatch.setattr("disque_spark.leases.cells.COUNTED", 0.0)
    with closing(QueueCells("test", at(*nodes))) as cells:
        cells.put("a", b"one")
        ids = [node.ask("CLUSTER", "MYID") for node in nodes]
        for node, id in zip(nodes[1:], ids[1:], strict=True):
            node.kill()
            assert isinstance(id, bytes)
            nodes[0].ask("CLUSTER", "FORGET", id)
        # The cell may have been on nodes that are gone, which nobody waits for any longer.
        assert cells.put("b", b"two").body == b"two"


def test_a_cluster_that_grows_has_more_copies(
    disque_server: NodeFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [disque_server() for _ in range(3)]
    monkeypatch.setattr("disque_spark.leases.cells.COUNTED", 0.0)
    with closing(QueueCells("test", at(nodes[0]))) as cells:
        cells.put("a", b"one")
        join(nodes)
        cells.put("b", b"two")
        nodes[0].kill()
        assert cells.find("b") is not None
