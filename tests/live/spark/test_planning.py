"""Whose turn it is in a read, and what is acknowledged when."""

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from disque_trio.respclient.login import Login
from disque_trio.spark.client import BlockingClient, RefusedError, WireError
from disque_trio.spark.datasources.queues import read_options
from disque_trio.spark.leases.directory import (
    DirectoryBatch,
    DirectoryPlace,
    LeaseFile,
    LeaseLog,
    batch_path,
    leased_ids,
)
from disque_trio.spark.leases.division import divided, shares
from disque_trio.spark.leases.fetch import FIRST_FETCH, ReadOptions, leased, take
from disque_trio.spark.leases.keeper import LeaseKeeper, ack
from disque_trio.spark.leases.planner import Offset, Planner
from disque_trio.spark.leases.queue import QueuePlace
from disque_trio.spark.leases.store import LeaseError, LeasePlace, PartitionPlan
from disque_trio.spark.options import OptionError
from tests.support.harness import (
    ClusterFactory,
    LiveNode,
    NodeFactory,
    free_port,
    start_process,
    wait_for_ping,
    wait_until,
)
from tests.support.scripted_node import ScriptedNode

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("queue", pa.string()),
        ("body", pa.binary()),
        ("nacks", pa.int32()),
        ("additional_deliveries", pa.int32()),
        ("node", pa.string()),
        ("ctime", pa.timestamp("us", "UTC")),
    ]
)


class Reader:
    """A planner, and the tasks of its batches."""

    def __init__(self, place: LeasePlace, nodes: list[str], **taking: object) -> None:
        self.options = ReadOptions(
            queues=("q",),
            nodes=tuple(nodes),
            discover=False,
            partitions_per_node=2,
            max_jobs=100,
            leases=place,
            idle_wait=5,
            **taking,  # type: ignore[arg-type]
        )
        self.place = place
        self.planner = Planner(self.options, SCHEMA, hold=False)

    def read(self, offset: Offset) -> list[str]:
        """The bodies of a batch."""
        return [
            body.decode()
            for seq, number, share in self.planner.plans(offset)
            for rows in leased(
                self.place.batch(seq, self.planner.owner, share.address),
                number,
                share,
                self.options,
                SCHEMA,
            )
            for body in rows.column(2).to_pylist()
        ]

    def again(self) -> None:
        """As after a restart."""
        self.planner.close()
        self.planner = Planner(self.options, SCHEMA, hold=False)

    def to_acknowledge(self) -> list[int]:
        """The batches that are over and not acknowledged."""
        self.planner.close()
        log = self.place.open()
        pending = log.to_acknowledge()
        log.close()
        self.again()
        return pending


def place_for(kind: str, tmp_path: Path, node: LiveNode) -> LeasePlace:
    """A place for leases of either kind."""
    if kind == "disque":
        return QueuePlace("test", (f"127.0.0.1:{node.port}",))
    return DirectoryPlace(tmp_path / "leases")


@pytest.fixture(params=["directory", "disque"])
def reader(request: pytest.FixtureRequest, tmp_path: Path, node: LiveNode) -> Iterator[Reader]:
    place = place_for(request.param, tmp_path, node)
    reader = Reader(place, [f"127.0.0.1:{node.port}"])
    yield reader
    reader.planner.close()


def add(node: LiveNode, count: int, first: int = 0) -> list[str]:
    wire = node.wire()
    for n in range(first, first + count):
        wire.send("ADDJOB", "q", f"body {n}", 0, "RETRY", 1)
    return [str(wire.read(), "ascii") for _ in range(count)]  # type: ignore[call-overload]


def jobs_at(node: LiveNode) -> int:
    reply = node.ask("JSCAN", 0, "BUSYLOOP", "QUEUE", "q", "STATE", "queued", "STATE", "active")
    assert isinstance(reply, list)
    return len(reply[1])


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
    """A sink may leave a whole batch out; the driver itself leased these."""
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
    """A file sink that has seen the numbers of the new query's batches leaves them out."""
    add(node, 4)
    one = reader.planner.latest(reader.planner.initial())
    assert len(reader.read(one)) == 4
    reader.again()
    begin = reader.planner.initial()  # as with a new checkpoint
    assert reader.planner.latest(begin) == one
    reader.planner.finish(one)
    assert node.ask("QLEN", "q") == 4


def test_jobs_of_nodes_out_of_reach_come_through_the_others(
    tmp_path: Path, cluster: ClusterFactory
) -> None:
    near, far = cluster(2)
    reader = Reader(DirectoryPlace(tmp_path / "leases"), [f"127.0.0.1:{near.port}"])
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


def test_a_password_is_used_for_all_that_is_asked(
    tmp_path: Path, disque_server: NodeFactory
) -> None:
    node = disque_server("--requirepass", "secret")
    wire = node.wire()
    wire("AUTH", "secret")
    wire("ADDJOB", "q", "body 0", 0)
    address = f"127.0.0.1:{node.port}"
    reader = Reader(DirectoryPlace(tmp_path / "leases"), [address], login=Login(password="secret"))
    try:
        one = reader.planner.latest(reader.planner.initial())
        assert reader.read(one) == ["body 0"]
        reader.planner.finish(one)
        assert wire("JSCAN", 0, "BUSYLOOP", "QUEUE", "q", "STATE", "active") == [b"0", []]
    finally:
        reader.planner.close()
    other = Reader(DirectoryPlace(tmp_path / "others"), [address])
    try:
        with pytest.raises(RefusedError, match="NOAUTH"):
            other.planner.latest(other.planner.initial())
    finally:
        other.planner.close()


def test_the_offset_of_another_directory_acknowledges_nothing(
    reader: Reader, node: LiveNode
) -> None:
    add(node, 20)
    one = reader.planner.latest(reader.planner.initial())
    reader.read(one)
    other = Offset(one.seq + 100, "another directory")
    assert reader.planner.plans(other) == []
    assert reader.planner.latest(other) == one
    assert jobs_at(node) == 20


def test_a_batch_begins_although_the_node_of_its_first_jobs_is_lost_meanwhile(
    tmp_path: Path,
) -> None:
    job = {"id": "D-1", "queue": "q", "body": b"x", "nacks": 0, "additional_deliveries": 0}
    first = pa.RecordBatch.from_pylist([{**job, "node": "n", "ctime": None}], schema=SCHEMA)
    with ScriptedNode(lambda request: None) as node:
        reader = Reader(DirectoryPlace(tmp_path), [node.address])
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
    # Spark runs its first batch though there is nothing new, also again after a crash.
    assert reader.read(start) == []
    reader.again()
    assert reader.read(start) == []
    add(node, 3)
    one = reader.planner.latest(start)
    assert len(reader.read(one)) == 3
    assert reader.planner.latest(one) == one
    assert jobs_at(node) == 0
    # A query with another checkpoint begins behind what is over.
    begin = reader.planner.initial()
    assert reader.planner.latest(begin) == begin
    assert reader.read(begin) == []
    assert Offset.of(begin.json()) == begin


def test_an_empty_first_batch_is_not_one_whose_jobs_are_acknowledged(
    reader: Reader, node: LiveNode
) -> None:
    """A checkpoint went back to before its first batch: that was not an empty one."""
    add(node, 3)
    one = reader.planner.latest(reader.planner.initial())
    reader.read(one)
    reader.planner.finish(one)
    reader.again()
    assert reader.planner.initial().seq == one.seq
    with pytest.raises(LeaseError, match="no batch 1"):
        reader.read(one)


def test_a_checkpoint_that_went_back_by_whole_batches_is_refused(
    reader: Reader, node: LiveNode
) -> None:
    """Its next batch would have a number that sinks have seen, and other jobs."""
    offsets = [reader.planner.initial()]
    for _ in range(3):
        add(node, 3)
        offsets.append(reader.planner.latest(offsets[-1]))
        reader.read(offsets[-1])
    reader.planner.finish(offsets[-1])
    for old in offsets[:-1]:
        with pytest.raises(LeaseError, match="old"):
            reader.planner.latest(old)
    assert reader.planner.latest(offsets[-1]) == offsets[-1]


def test_a_checkpoint_that_went_back_does_not_repeat_a_batch_without_its_jobs(
    reader: Reader, node: LiveNode
) -> None:
    add(node, 20)
    one = reader.planner.latest(reader.planner.initial())
    reader.read(one)
    assert reader.planner.latest(one) == one
    with pytest.raises(LeaseError, match="no batch 1"):
        reader.planner.plans(one)


def test_without_a_node_nothing_comes_and_acknowledging_is_put_off(
    tmp_path: Path, node: LiveNode
) -> None:
    reader = Reader(DirectoryPlace(tmp_path / "leases"), [f"127.0.0.1:{node.port}"])
    add(node, 20)
    one = reader.planner.latest(reader.planner.initial())
    reader.read(one)
    node.kill()
    assert reader.planner.latest(one) == one
    assert reader.to_acknowledge() == [1]
    reader.planner.close()


@pytest.mark.parametrize("kind", ["directory", "disque"])
def test_a_node_that_restarts_in_the_middle_of_a_batch_loses_nothing(
    tmp_path: Path, disque_server: NodeFactory, kind: str
) -> None:
    files = ("--appendonly", "yes", "--appendfsync", "always")
    node = disque_server(*files)
    reader = Reader(place_for(kind, tmp_path, node), [f"127.0.0.1:{node.port}"])
    options = ("--port", str(node.port), "--bind", "127.0.0.1", *files)
    again = None
    try:
        add(node, 120)
        one = reader.planner.latest(reader.planner.initial())
        found = reader.read(one)
        node.kill()
        assert reader.planner.latest(one) == one  # nothing to be had, nobody to tell
        again = start_process(node.directory, node.port, *options)
        assert wait_for_ping(again)
        reader.planner.finish(one)
        assert jobs_at(again) == 20
        wait_until(lambda: again.ask("QLEN", "q") == 20)
        reader.again()  # it would leave the node alone for some seconds
        two = reader.planner.latest(one)
        found += reader.read(two)
        reader.planner.finish(two)
        assert sorted(found) == sorted(f"body {n}" for n in range(120))
        assert jobs_at(again) == 0
    finally:
        reader.planner.close()
        if again is not None:
            again.close()


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


def test_what_a_leaving_node_has_takes_no_place_in_batches(
    tmp_path: Path, disque_server: NodeFactory
) -> None:
    staying, leaving = disque_server(), disque_server()
    add(staying, 2)
    add(leaving, 500)
    leaving.ask("CLUSTER", "LEAVING", "yes")
    nodes = [f"127.0.0.1:{node.port}" for node in (leaving, staying)]
    reader = Reader(DirectoryPlace(tmp_path / "leases"), nodes)
    try:
        one = reader.planner.latest(reader.planner.initial())
        assert len(reader.read(one)) == 2
    finally:
        reader.planner.close()


def test_large_jobs_are_fetched_a_few_at_a_time(
    reader: Reader, node: LiveNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("disque_trio.spark.leases.fetch.FETCH_BYTES", 100_000)
    wire = node.wire()
    for _ in range(40):
        wire("ADDJOB", "q", b"x" * 30_000, 0)
    with BlockingClient(reader.options.nodes) as own:
        taken = [rows.num_rows for rows in take(own, ReadOptions(("q",)), 0, SCHEMA)]
    assert taken == [16] + [3] * 8


def test_a_full_disk_fails_the_task_and_gives_the_jobs_back(tmp_path: Path, node: LiveNode) -> None:
    wire = node.wire()
    for _ in range(10):
        wire("ADDJOB", "q", b"x" * 50_000, 0, "RETRY", 600)
    share = PartitionPlan(f"127.0.0.1:{node.port}", 10)
    with LeaseLog(tmp_path) as log:
        log.begin(1, [share], None)
        batch = batch_path(tmp_path, 1)
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
        try:
            with pytest.raises(OSError, match="too large"):
                list(leased(DirectoryBatch(batch), 0, share, ReadOptions(("q",)), SCHEMA))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert [path.name for path in batch.iterdir()] == ["plan.json"]
        assert node.ask("QLEN", "q") == 10
        again = list(leased(DirectoryBatch(batch), 0, share, ReadOptions(("q",)), SCHEMA))
        assert sum(rows.num_rows for rows in again) == 10


def test_a_task_that_comes_when_the_batch_is_over_fails(tmp_path: Path, node: LiveNode) -> None:
    add(node, 3)
    share = PartitionPlan(f"127.0.0.1:{node.port}", 3)
    with LeaseLog(tmp_path) as log:
        log.begin(1, [share], None)
        batch = batch_path(tmp_path, 1)
        log.finish(1)
        with pytest.raises(LeaseError):
            list(leased(DirectoryBatch(batch), 0, share, ReadOptions(("q",)), SCHEMA))
        assert node.ask("QLEN", "q") == 3


@pytest.mark.parametrize(
    ("options", "batch", "reason"),
    [
        ({"queue": "q"}, False, "leaseDirectory"),
        ({"queue": "q"}, True, "leaseDirectory"),
        ({"leases": "disque", "queue": "q"}, False, "leaseQueue: expected a name"),
        ({"leaseQueue": "a", "leaseDirectory": "/x", "queue": "q"}, False, "leaseDirectory"),
        ({"leaseQueue": "a", "leases": "directory", "queue": "q"}, False, "leaseQueue"),
        ({"leaseQueue": "spark-leases/a", "queue": "q"}, False, "leaseQueue"),
        ({"leases": "s3", "queue": "q"}, False, "leases: expected directory or disque"),
        ({"leaseDirectory": "/x"}, False, "queue or queues"),
        ({"leaseDirectory": "/x", "queue": "q", "queues": "a,b"}, False, "queue or queues"),
        ({"leaseDirectory": "/x", "queues": "a,,b"}, False, "queue or queues"),
        ({"leaseDirectory": "hdfs://x/y", "queue": "q"}, False, "workers can open"),
        ({"leaseDirectory": "file://other/y", "queue": "q"}, False, "this machine"),
        ({"leaseDirectory": "/x", "queue": "q", "nodes": "a:7711,b:x"}, False, "nodes: .*b:x"),
        ({"leaseDirectory": "/x", "queue": "q", "nodes": ":7711"}, False, "nodes"),
        ({"leaseDirectory": "/x", "queue": "q", "fetch": "0"}, False, "fetch"),
        ({"leaseDirectory": "/x", "queue": "q", "queuePattern": "q*"}, False, "queuePattern"),
        ({"leaseDirectory": "/x", "queuePattern": ""}, False, "queuePattern"),
        ({"leaseDirectory": "/x", "queue": "q", "minPartitions": "0"}, False, "minPartitions"),
        ({"leaseDirectory": "/x", "queue": "q", "maxBytesPerBatch": "0"}, False, "maxBytes"),
        ({"queue": "q", "ackOnRead": "true", "maxBytesPerBatch": "1"}, True, "maxBytes"),
        ({"leaseDirectory": "/x", "queue": "q", "maxJobsPerBatch": "0"}, False, "maxJobsPerBatch"),
        ({"leaseDirectory": "/x", "queue": "q", "ackOnRead": "true"}, False, "ackOnRead"),
        ({"queue": "q", "ackOnRead": "true", "maxJobsPerBatch": "1"}, True, "maxJobsPerBatch"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    options: dict[str, str], batch: bool, reason: str
) -> None:
    with pytest.raises(OptionError, match=reason):
        read_options(options, batch)


def test_driver_and_executors_name_the_same_directory_and_each_queue_once() -> None:
    read = read_options({"leaseDirectory": "leases", "queues": "a, b,a"}, batch=False)
    assert read.leases == DirectoryPlace(Path.cwd() / "leases")
    assert read.queues == ("a", "b")


def test_a_target_counts_what_was_taken_and_not_what_was_planned(
    reader: Reader, node: LiveNode
) -> None:
    add(node, 5)
    reader.planner.only_what_is_there()
    start = reader.planner.initial()
    one = reader.planner.latest(start)
    taken = node.ask("GETJOB", "COUNT", 3, "FROM", "q")  # somebody else is faster
    assert isinstance(taken, list)
    assert len(reader.read(one)) == 2
    add(node, 10, first=5)
    two = reader.planner.latest(one)
    assert len(reader.read(two)) == 3
    assert reader.planner.latest(two) == two


def test_tasks_whose_node_is_gone_have_no_jobs(tmp_path: Path) -> None:
    with LeaseLog(tmp_path) as log:
        share = PartitionPlan(f"127.0.0.1:{free_port()}", 10)
        log.begin(1, [share], None)
        batch = batch_path(tmp_path, 1)
        assert list(leased(DirectoryBatch(batch), 0, share, ReadOptions(("q",)), SCHEMA)) == []
        assert (batch / "0.arrow").exists()


def test_jobs_of_an_attempt_that_was_not_first_go_back_to_their_queue(
    tmp_path: Path, node: LiveNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(node, 10)
    share = PartitionPlan(f"127.0.0.1:{node.port}", 3)
    with LeaseLog(tmp_path) as log:
        log.begin(1, [share], None)
        batch = batch_path(tmp_path, 1)
        taking = ReadOptions(("q",), fetch=3)
        other: list[pa.RecordBatch] = []

        append = LeaseFile.append

        def slow(file: LeaseFile, rows: pa.RecordBatch) -> None:
            append(file, rows)
            monkeypatch.undo()
            other.extend(leased(DirectoryBatch(batch), 0, share, taking, SCHEMA))

        monkeypatch.setattr(LeaseFile, "append", slow)
        again = list(leased(DirectoryBatch(batch), 0, share, taking, SCHEMA))
        assert [rows.to_pydict() for rows in again] == [rows.to_pydict() for rows in other]
        assert node.ask("QLEN", "q") == 7


def test_acknowledging_goes_on_where_a_lost_node_ended_it(tmp_path: Path, node: LiveNode) -> None:
    ids = add(node, 10)

    def dies(request: list[bytes]) -> bytes | None:
        return None

    with ScriptedNode(dies) as gone, LeaseLog(tmp_path) as log:
        rows = pa.RecordBatch.from_pydict({"id": ids})
        log.begin(1, [PartitionPlan(gone.address, 10)], rows)
        DirectoryBatch(batch_path(tmp_path, 1)).mark_read(0)
        with pytest.raises(WireError):
            LeaseKeeper(log).finish()
        assert log.open_batches() == []
        assert leased_ids(log.done_path(1), 0) == ids
        assert LeaseKeeper(log, [f"127.0.0.1:{node.port}"]).finish() == {1: 10}
        assert log.to_acknowledge() == []
    assert jobs_at(node) == 0
    assert ack(tmp_path) == 0


def test_working_keeps_leased_jobs_from_being_delivered_again(
    tmp_path: Path, node: LiveNode
) -> None:
    ids = add(node, 20)
    node.ask("GETJOB", "COUNT", 20, "FROM", "q")
    with LeaseLog(tmp_path) as log:
        # Half of them are in a lease of a node that is gone: then others are asked.
        own = f"127.0.0.1:{node.port}"
        log.begin(1, [PartitionPlan(own, 5)], pa.RecordBatch.from_pydict({"id": ids[:5]}))
        gone = PartitionPlan(f"127.0.0.1:{free_port()}", 5)
        log.begin(2, [gone], pa.RecordBatch.from_pydict({"id": ids[5:10]}))
        holder = LeaseKeeper(log, [own])

        def not_leased_are_back() -> bool:
            holder.working()
            return node.ask("QLEN", "q") == 10

        wait_until(not_leased_are_back)
        holder.working()
        assert [jobs_state(node, id) for id in ids] == [b"active"] * 10 + [b"queued"] * 10


def jobs_state(node: LiveNode, id: str) -> object:
    fields = node.ask("SHOW", id)
    assert isinstance(fields, list)
    return fields[fields.index(b"state") + 1]


def has_one_job(request: list[bytes]) -> bytes:
    """The answers of a node with one job, D-1, which only its first GETJOB gets."""
    if request[0] == b"HELLO":
        return b"*2\r\n:1\r\n$2\r\nab\r\n"
    if request[0] == b"GETJOB" and int(request[request.index(b"COUNT") + 1]) == FIRST_FETCH:
        fields = (b"q", b"D-1", b"body", b"nacks", 0, b"additional-deliveries", 0)
        return b"*1\r\n*7\r\n" + b"".join(
            b":%d\r\n" % field if isinstance(field, int) else b"$%d\r\n%s\r\n" % (len(field), field)
            for field in fields
        )
    return {b"CLUSTER": b"$2\r\nno\r\n", b"WORKING": b":60\r\n"}.get(request[0], b"*-1\r\n")


def test_working_is_said_as_soon_as_a_lease_is_on_the_disk(tmp_path: Path) -> None:
    """Not a heartbeat later: a copy elsewhere may be about to come into its queue."""
    leases: list[list[str]] = []

    def answer(request: list[bytes]) -> bytes:
        if request == [b"WORKING", b"D-1"]:
            leases.append(leased_ids(batch_path(tmp_path, 1), 0))
        return has_one_job(request)

    with ScriptedNode(answer) as node, LeaseLog(tmp_path) as log:
        share = PartitionPlan(node.address, FIRST_FETCH)
        log.begin(1, [share], None)
        assert list(
            leased(DirectoryBatch(batch_path(tmp_path, 1)), 0, share, ReadOptions(("q",)), SCHEMA)
        )
    assert leases == [["D-1"]]


def test_working_is_said_at_once_for_what_the_driver_takes(tmp_path: Path) -> None:
    with ScriptedNode(has_one_job) as node:
        planner = Reader(DirectoryPlace(tmp_path), [node.address]).planner
        start = planner.initial()
        assert planner.latest(start) != start
        assert [b"WORKING", b"D-1"] in node.requests
        planner.close()


def test_what_a_driver_finds_when_it_starts_is_kept_at_once(tmp_path: Path) -> None:
    with ScriptedNode(has_one_job) as node, LeaseLog(tmp_path) as log:
        lease = pa.RecordBatch.from_pydict({"id": ["D-old"]})
        log.begin(1, [PartitionPlan(node.address, 1)], lease)
        holder = LeaseKeeper(log, [node.address])
        holder.start(3600)
        try:
            wait_until(lambda: [b"WORKING", b"D-old"] in node.requests)
        finally:
            holder.close()


def test_all_nodes_have_their_turn_when_there_are_fewer_jobs_in_a_batch_than_nodes() -> None:
    lengths = {"a:1": 1_000_000, "b:1": 3, "c:1": 0, "d:1": 5}
    assert [shares(lengths, 1, turn) for turn in range(3)] == [
        {"a:1": 1, "b:1": 0, "d:1": 0},
        {"a:1": 0, "b:1": 1, "d:1": 0},
        {"a:1": 0, "b:1": 0, "d:1": 1},
    ]


def test_a_node_with_few_jobs_is_visited_beside_one_with_many() -> None:
    lengths = {"a:1": 1_000_000, "b:1": 3, "c:1": 0, "d:1": 5}
    assert shares(lengths, 100, 0) == {"a:1": 99, "b:1": 1, "d:1": 0}
    assert shares(lengths, 100, 1) == {"a:1": 99, "b:1": 1, "d:1": 0}
    assert shares(lengths, 100, 2) == {"a:1": 99, "b:1": 0, "d:1": 1}
    assert shares({"a:1": 6, "b:1": 4}, 20, 7) == {"a:1": 11, "b:1": 9}
    assert shares({}, 20, 7) == {}


def test_shares_add_up() -> None:
    assert divided(10, 3) == [4, 3, 3]
    assert divided(2, 2) == [1, 1]


def taking(node: LiveNode, size: int = 0, **options: object) -> list[pa.RecordBatch]:
    """What a task takes from a node."""
    with BlockingClient([f"127.0.0.1:{node.port}"]) as client:
        return list(take(client, ReadOptions(**options), 0, SCHEMA, size))  # type: ignore[arg-type]


def test_a_task_takes_no_more_bytes_than_it_may(node: LiveNode) -> None:
    for _ in range(30):
        node.ask("ADDJOB", "q", "x" * 1000, 0, "RETRY", 600)
    assert sum(rows.num_rows for rows in taking(node, 10_500, queues=("q",))) == 10
    assert sum(rows.num_rows for rows in taking(node, 10, queues=("q",))) == 1  # at least one
    assert sum(rows.num_rows for rows in taking(node, queues=("q",))) == 19


def test_queues_of_a_pattern_are_read_when_they_appear(tmp_path: Path, node: LiveNode) -> None:
    place = DirectoryPlace(tmp_path / "leases")
    options = ReadOptions(
        (), (f"127.0.0.1:{node.port}",), False, max_jobs=100, leases=place, pattern="mail.*"
    )
    planner = Planner(options, SCHEMA, hold=False)
    try:
        start = planner.initial()
        node.ask("ADDJOB", "other", "body", 0)
        assert planner.latest(start) == start
        node.ask("ADDJOB", "mail.a", "one", 0, "RETRY", 600)
        one = planner.latest(start)
        assert one != start
        node.ask("ADDJOB", "mail.b", "two", 0, "RETRY", 600)
        bodies: list[bytes] = []

        def read() -> bool:
            nonlocal one
            for seq, number, plan in planner.plans(one):
                batch = place.batch(seq, planner.owner, plan.address)
                for rows in leased(batch, number, plan, options, SCHEMA):
                    bodies.extend(rows.column("body").to_pylist())
            one = planner.latest(one)
            return sorted(bodies) == [b"one", b"two"]

        wait_until(read)
        assert node.ask("QLEN", "other") == 1
    finally:
        planner.close()


def test_what_is_behind_a_batch_is_told(reader: Reader, node: LiveNode) -> None:
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


@pytest.mark.skipif(
    not os.environ.get("DISQUE_SPARK_LONG"), reason="waits for nodes; set DISQUE_SPARK_LONG"
)
@pytest.mark.timeout(120)
def test_batches_go_on_while_one_node_after_the_other_is_killed_and_comes_back(
    cluster: ClusterFactory,
) -> None:
    """Leases in Disque: planned, leased, ended and read again with any one of three nodes away."""
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
            options = ("--port", str(port), "--bind", "127.0.0.1", *files)
            restarted.append(start_process(directory, port, *options))
            assert wait_for_ping(restarted[-1])
            nodes[at] = restarted[-1]
            wait_until(lambda: all(joined(node) for node in nodes))

        def all_is_done() -> bool:
            nonlocal offset
            if is_planned():
                found[planned.seq] = reader.read(planned)
                offset = planned
            return not any(jobs_at(node) for node in nodes)

        wait_until(all_is_done, 60)
    finally:
        reader.planner.close()
        for node in restarted:
            node.close()
    assert {body for rows in found.values() for body in rows} == expected


def joined(node: LiveNode) -> bool:
    """Whether it reaches all nodes of its cluster of three."""
    text = node.ask("CLUSTER", "INFO")
    assert isinstance(text, bytes)
    return b"cluster_state:ok" in text and b"cluster_reachable_nodes:2" in text
