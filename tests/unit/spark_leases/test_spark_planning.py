"""Whose turn it is in a read, and what is acknowledged when."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from harness import LiveNode, free_port, wait_until
from scripted_node import ScriptedNode

from disque_trio.spark.holder import Holder, ack
from disque_trio.spark.leases import LeaseError, LeaseFile, LeaseLog, Share, batch_path, leased_ids
from disque_trio.spark.options import OptionError
from disque_trio.spark.planning import Offset, Planner, Reading, divided
from disque_trio.spark.read import reading_of
from disque_trio.spark.taking import Taking, leased
from disque_trio.spark.wire import WireError

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

    def __init__(self, directory: Path, nodes: list[str], **taking: int) -> None:
        self.reading = Reading(
            nodes=tuple(nodes),
            discover=False,
            partitions_per_node=2,
            max_jobs=100,
            directory=directory,
            idle_wait=5,
            taking=Taking(queues=("q",), **taking),  # type: ignore[arg-type]
        )
        self.directory = directory
        self.planner = Planner(self.reading, SCHEMA, hold=False)

    def read(self, offset: Offset) -> list[str]:
        """The bodies of a batch."""
        return [
            body.decode()
            for seq, number, share in self.planner.shares(offset)
            for rows in leased(
                batch_path(self.directory, seq), number, share, self.reading.taking, SCHEMA
            )
            for body in rows.column(2).to_pylist()
        ]

    def again(self) -> None:
        """As after a restart."""
        self.planner.close()
        self.planner = Planner(self.reading, SCHEMA, hold=False)

    def to_acknowledge(self) -> list[int]:
        """The batches that are over and not acknowledged."""
        self.planner.close()
        with LeaseLog(self.directory) as log:
            pending = log.to_acknowledge()
        self.again()
        return pending


@pytest.fixture
def reader(tmp_path: Path, node: LiveNode) -> Iterator[Reader]:
    reader = Reader(tmp_path / "leases", [f"127.0.0.1:{node.port}"])
    yield reader
    reader.planner.close()


def add(node: LiveNode, count: int, first: int = 0) -> list[str]:
    wire = node.wire()
    for n in range(first, first + count):
        wire.send("ADDJOB", "q", f"body {n}", 0, "RETRY", 1)
    return [str(wire.read(), "ascii") for _ in range(count)]  # type: ignore[call-overload]


def jobs_at(node: LiveNode) -> int:
    reply = node.ask("JSCAN", 0, "BUSYLOOP", "STATE", "queued", "STATE", "active")
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


def test_the_offset_of_another_directory_acknowledges_nothing(
    reader: Reader, node: LiveNode
) -> None:
    add(node, 20)
    one = reader.planner.latest(reader.planner.initial())
    reader.read(one)
    other = Offset(one.seq + 100, "another directory")
    assert reader.planner.shares(other) == []
    assert reader.planner.latest(other) == one
    assert jobs_at(node) == 20


def test_a_checkpoint_that_went_back_does_not_repeat_a_batch_without_its_jobs(
    reader: Reader, node: LiveNode
) -> None:
    add(node, 20)
    one = reader.planner.latest(reader.planner.initial())
    reader.read(one)
    assert reader.planner.latest(one) == one
    with pytest.raises(LeaseError, match="no batch 1"):
        reader.planner.shares(one)


def test_without_a_node_nothing_comes_and_acknowledging_is_put_off(
    reader: Reader, node: LiveNode
) -> None:
    add(node, 20)
    one = reader.planner.latest(reader.planner.initial())
    reader.read(one)
    node.kill()
    assert reader.planner.latest(one) == one
    assert reader.to_acknowledge() == [1]


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
    one = reader.planner.latest(reader.planner.initial())
    assert reader.read(one) == []
    assert reader.planner.latest(one) == one
    node.ask("PAUSE", "q", "none")
    two = reader.planner.latest(one)
    assert len(reader.read(two)) == 5


@pytest.mark.parametrize(
    ("options", "batch", "reason"),
    [
        ({"queue": "q"}, False, "leaseDirectory"),
        ({"queue": "q"}, True, "leaseDirectory"),
        ({"leaseDirectory": "/x"}, False, "queue or queues"),
        ({"leaseDirectory": "/x", "queue": "q", "queues": "a,b"}, False, "queue or queues"),
        ({"leaseDirectory": "/x", "queues": "a,,b"}, False, "queue or queues"),
        ({"leaseDirectory": "hdfs://x/y", "queue": "q"}, False, "workers can open"),
        ({"leaseDirectory": "/x", "queue": "q", "fetch": "0"}, False, "fetch"),
        ({"leaseDirectory": "/x", "queue": "q", "maxJobsPerBatch": "0"}, False, "maxJobsPerBatch"),
        ({"leaseDirectory": "/x", "queue": "q", "ackOnRead": "true"}, False, "ackOnRead"),
        ({"queue": "q", "ackOnRead": "true", "maxJobsPerBatch": "1"}, True, "maxJobsPerBatch"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    options: dict[str, str], batch: bool, reason: str
) -> None:
    with pytest.raises(OptionError, match=reason):
        reading_of(options, batch)


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
        share = Share(f"127.0.0.1:{free_port()}", 10)
        log.begin(1, [share], None)
        batch = batch_path(tmp_path, 1)
        assert list(leased(batch, 0, share, Taking(("q",)), SCHEMA)) == []
        assert (batch / "0.arrow").exists()


def test_jobs_of_an_attempt_that_was_not_first_go_back_to_their_queue(
    tmp_path: Path, node: LiveNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(node, 10)
    share = Share(f"127.0.0.1:{node.port}", 3)
    with LeaseLog(tmp_path) as log:
        log.begin(1, [share], None)
        batch = batch_path(tmp_path, 1)
        taking = Taking(("q",), fetch=3)
        other: list[pa.RecordBatch] = []

        append = LeaseFile.append

        def slow(file: LeaseFile, rows: pa.RecordBatch) -> None:
            append(file, rows)
            monkeypatch.undo()
            other.extend(leased(batch, 0, share, taking, SCHEMA))

        monkeypatch.setattr(LeaseFile, "append", slow)
        again = list(leased(batch, 0, share, taking, SCHEMA))
        assert [rows.to_pydict() for rows in again] == [rows.to_pydict() for rows in other]
        assert node.ask("QLEN", "q") == 7


def test_acknowledging_goes_on_where_a_lost_node_ended_it(tmp_path: Path, node: LiveNode) -> None:
    ids = add(node, 10)

    def dies(request: list[bytes]) -> bytes | None:
        return None

    with ScriptedNode(dies) as gone, LeaseLog(tmp_path) as log:
        rows = pa.RecordBatch.from_pydict({"id": ids})
        log.begin(1, [Share(gone.address, 10)], rows)
        with pytest.raises(WireError):
            Holder(log).finish()
        assert log.open_batches() == []
        assert leased_ids(log.done_path(1), 0) == ids
        assert Holder(log, [f"127.0.0.1:{node.port}"]).finish() == {1: 10}
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
        log.begin(1, [Share(own, 5)], pa.RecordBatch.from_pydict({"id": ids[:5]}))
        gone = Share(f"127.0.0.1:{free_port()}", 5)
        log.begin(2, [gone], pa.RecordBatch.from_pydict({"id": ids[5:10]}))
        holder = Holder(log, [own])

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


def test_shares_add_up() -> None:
    assert divided(10, 3) == [4, 3, 3]
    assert divided(2, 2) == [1, 1]
