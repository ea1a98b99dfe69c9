"""Spark reads queues of real nodes: as a stream, and as a batch."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StreamingQuery

from disque_spark import ack, holding
from disque_spark.progress import ProgressListener
from packages.spark.tests.support.lease_reader import left_at
from tests.support.harness import HANG_SECONDS, ClusterFactory, LiveNode, free_port, wait_until


def add(node: LiveNode, queue: str, count: int, *options: str | int, first: int = 0) -> list[str]:
    """Add jobs ``body <n>`` and return their ids."""
    wire = node.wire()
    for n in range(first, first + count):
        wire.send("ADDJOB", queue, f"body {n}", 60_000, *options)
    return [text(wire.read()) for _ in range(count)]


def text(reply: object) -> str:
    assert isinstance(reply, bytes), reply
    return reply.decode()


def addresses(*nodes: LiveNode) -> str:
    return ",".join(f"127.0.0.1:{node.port}" for node in nodes)


def jobs_at(node: LiveNode) -> int:
    """Return how many unacknowledged jobs the node holds, except leases."""
    return len(left_at(node))


def end(query: StreamingQuery) -> None:
    """Wait for the end of a stream, and end it in any case."""
    try:
        assert query.awaitTermination(2 * HANG_SECONDS)
    finally:
        query.stop()


class Stream:
    """A stream of the queue ``q`` that collects the rows in a list, and on disk."""

    def __init__(self, spark: SparkSession, directory: Path, *nodes: LiveNode) -> None:
        self.spark = spark
        self.directory = directory
        self.nodes = nodes
        self.batches: list[list[Row]] = []
        self.failures = 0  # this many batches fail after they were collected

    def start(self, once: bool = True, **options: object) -> StreamingQuery:
        reader = (
            self.spark.readStream.format("disque")
            .option("nodes", addresses(*self.nodes))
            .option("leaseQueue", self.directory.name)
        )
        if "queuePattern" not in options:
            reader = reader.option("queue", "q")
        for name, value in options.items():
            reader = reader.option(name, str(value))
        writer = reader.load().writeStream.foreachBatch(self._collect)
        if once:
            writer = writer.trigger(availableNow=True)
        return writer.option("checkpointLocation", str(self.directory / "checkpoint")).start()

    def run(self, **options: object) -> None:
        """Run until nothing is left of what was there at the start."""
        while True:
            try:
                return end(self.start(**options))
            except StreamingQueryException as problem:
                # Spark gives its Python process ten seconds, which are too few on a busy machine.
                if "failed to connect back" not in str(problem):
                    raise

    def _collect(self, frame: DataFrame, number: int) -> None:
        self.batches.append(frame.collect())
        if self.failures:
            self.failures -= 1
            raise RuntimeError("the sink fails")

    def bodies(self) -> list[str]:
        return [row.body.decode() for rows in self.batches for row in rows]

    def has(self, expected: list[str]) -> bool:
        return sorted(self.bodies()) == sorted(expected)


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path, node: LiveNode) -> Stream:
    return Stream(spark, tmp_path / "stream", node)


def test_a_row_has_the_fields_that_the_node_reports(stream: Stream, node: LiveNode) -> None:
    wire = node.wire()
    id = text(wire("ADDJOB", "q", b"\x00\xff", 0))
    wire("GETJOB", "FROM", "q")
    wire("NACK", id)
    stream.run(withCtime=True)
    [[row]] = [batch for batch in stream.batches if batch]
    assert (row.id, row.queue, row.body) == (id, "q", b"\x00\xff")
    assert (row.nacks, row.additional_deliveries) == (1, 0)
    assert row.node == text(node.ask("CLUSTER", "MYID"))
    assert row.ctime.year >= 2024
    assert jobs_at(node) == 0


def test_all_jobs_come_once_and_are_acknowledged(stream: Stream, node: LiveNode) -> None:
    add(node, "q", 1000)
    stream.run(maxJobsPerBatch=300, partitionsPerNode=2, fetch=40)
    assert sorted(stream.bodies()) == sorted(f"body {n}" for n in range(1000))
    assert [len(batch) for batch in stream.batches] == [300, 300, 300, 100]
    assert jobs_at(node) == 0


def test_available_now_ends_though_jobs_go_on_coming(stream: Stream, node: LiveNode) -> None:
    add(node, "q", 10)

    class Producing(Stream):
        def _collect(self, frame: DataFrame, number: int) -> None:
            super()._collect(frame, number)
            add(node, "q", 5, first=100 * number + 100)

    producing = Producing(stream.spark, stream.directory, node)
    producing.run(maxJobsPerBatch=5)
    assert len(producing.bodies()) == 10


def test_a_stream_of_an_empty_queue_ends_and_goes_on_when_there_are_jobs(
    stream: Stream, node: LiveNode
) -> None:
    for _ in range(2):
        stream.run()
        assert stream.bodies() == []
    add(node, "q", 5)
    stream.run()
    assert stream.has([f"body {n}" for n in range(5)])
    assert jobs_at(node) == 0


def test_a_batch_that_failed_comes_again_as_it_was(stream: Stream, node: LiveNode) -> None:
    add(node, "q", 50)
    stream.failures = 1
    with pytest.raises(StreamingQueryException):
        stream.run()
    assert jobs_at(node) == 50
    add(node, "q", 50, first=50)
    stream.run()
    first, again, rest = stream.batches
    assert sorted(first) == sorted(again)
    assert len(set(stream.bodies())) == 100
    assert len(rest) == 50
    assert jobs_at(node) == 0


def test_a_frame_that_is_used_twice_has_the_same_jobs(
    spark: SparkSession, tmp_path: Path, node: LiveNode
) -> None:
    class Twice(Stream):
        def _collect(self, frame: DataFrame, number: int) -> None:
            super()._collect(frame, number)
            super()._collect(frame, number)

    twice = Twice(spark, tmp_path / "twice", node)
    add(node, "q", 40)
    twice.run()
    assert sorted(twice.batches[0]) == sorted(twice.batches[1])
    assert len(twice.bodies()) == 80


def test_a_table_that_knows_another_checkpoint_loses_nothing(
    spark: SparkSession, tmp_path: Path, node: LiveNode
) -> None:
    """A file sink skips batches whose numbers it already has, whatever is in them."""

    def run() -> None:
        reader = spark.readStream.format("disque").option("nodes", addresses(node))
        reader = reader.option("queue", "q").option("leaseQueue", "test")
        jobs = reader.option("maxJobsPerBatch", "4").load()
        writer = jobs.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        end(writer.trigger(availableNow=True).start())

    add(node, "q", 12)
    run()
    shutil.rmtree(tmp_path / "checkpoint")
    add(node, "q", 12, first=12)
    run()
    table = spark.read.parquet(str(tmp_path / "out"))
    archived = [bytes(row.body).decode() for row in table.collect()]
    queued = node.ask("QLEN", "q")
    assert len(set(archived)) == len(archived)
    assert queued == 24 - len(archived) == jobs_at(node)


def test_jobs_in_a_long_batch_are_kept_from_being_delivered_again(
    spark: SparkSession, tmp_path: Path, node: LiveNode
) -> None:
    class Slow(Stream):
        def _collect(self, frame: DataFrame, number: int) -> None:
            super()._collect(frame, number)
            id = add(node, "clock", 1, "RETRY", 5)[0]
            node.ask("GETJOB", "FROM", "clock")
            wait_until(lambda: node.ask("QLEN", "clock") == 1)  # so five seconds have passed
            node.ask("ACKJOB", id)
            delivered.append(node.ask("QLEN", "q"))

    delivered: list[object] = []
    add(node, "q", 30, "RETRY", 4)
    slow = Slow(spark, tmp_path / "slow", node)
    slow.run(heartbeat=1)
    assert delivered == [0]
    assert len(slow.bodies()) == 30


def test_a_stream_waits_for_jobs_and_takes_them_when_they_come(
    stream: Stream, node: LiveNode
) -> None:
    query = stream.start(once=False)
    try:
        for first in (0, 5, 10):
            expected = [f"body {n}" for n in range(first + 5)]
            add(node, "q", 5, first=first)
            wait_until(partial(stream.has, expected))
            wait_until(lambda: jobs_at(node) == 0)
        assert query.exception() is None
    finally:
        query.stop()


def test_jobs_come_from_all_nodes_of_a_cluster(
    spark: SparkSession, tmp_path: Path, cluster: ClusterFactory
) -> None:
    nodes = cluster(3)
    for place, one in enumerate(nodes):
        add(one, "q", 30, "REPLICATE", 2, first=100 * place)
    stream = Stream(spark, tmp_path / "stream", nodes[0])  # the others are found
    stream.run()
    assert len(set(stream.bodies())) == len(stream.bodies()) == 90
    assert len({row.node for rows in stream.batches for row in rows}) == 3
    wait_until(lambda: all(jobs_at(one) == 0 for one in nodes))


def test_a_dead_node_does_not_stop_a_stream(
    spark: SparkSession, tmp_path: Path, cluster: ClusterFactory
) -> None:
    nodes = cluster(3)
    stream = Stream(spark, tmp_path / "stream", *nodes)
    query = stream.start(once=False)
    try:
        add(nodes[0], "q", 10)
        wait_until(lambda: len(stream.bodies()) == 10)
        nodes[0].kill()
        add(nodes[1], "q", 10, "REPLICATE", 2, first=10)
        wait_until(lambda: len(stream.bodies()) == 20)
        assert query.exception() is None
    finally:
        query.stop()


Reading = Callable[..., DataFrame]


@pytest.fixture
def batch(spark: SparkSession, tmp_path: Path, node: LiveNode) -> Reading:
    """Return a reader of the queue ``q`` of ``node``."""

    def load(**options: object) -> DataFrame:
        reader = spark.read.format("disque").option("nodes", addresses(node))
        reader = reader.option("queue", "q").option("leaseQueue", "test")
        for name, value in options.items():
            reader = reader.option(name, str(value))
        return reader.load()

    return load


def test_a_batch_is_the_same_until_it_is_acknowledged(
    batch: Reading, tmp_path: Path, node: LiveNode
) -> None:
    add(node, "q", 700)
    first = batch().collect()
    assert len({row.id for row in first}) == len(first) == 700
    add(node, "q", 5, first=700)
    assert sorted(batch(partitionsPerNode=2).collect()) == sorted(first)
    assert jobs_at(node) == 705
    assert ack(nodes=addresses(node), lease_queue="test") == 700
    assert jobs_at(node) == 5
    assert len(batch().collect()) == 5


def test_holding_acknowledges_at_the_end_and_not_after_an_error(
    batch: Reading, tmp_path: Path, node: LiveNode
) -> None:
    add(node, "q", 10)

    def fails() -> None:
        with holding(nodes=addresses(node), lease_queue="test"):
            assert batch().count() == 10
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert jobs_at(node) == 10
    with holding(nodes=addresses(node), lease_queue="test"):
        assert batch().count() == 10
    assert jobs_at(node) == 0


def test_a_batch_can_have_a_limit(batch: Reading, tmp_path: Path, node: LiveNode) -> None:
    add(node, "q", 30)
    assert batch(maxJobsPerBatch=20, partitionsPerNode=3).count() == 20
    ack(nodes=addresses(node), lease_queue="test")
    assert batch(maxJobsPerBatch=20).count() == 10


def test_ack_on_read_takes_only_as_many_jobs_as_were_said(
    spark: SparkSession, cluster: ClusterFactory
) -> None:
    nodes = cluster(3)
    for node, count in zip(nodes, (20, 5, 0), strict=True):
        add(node, "q", count, "REPLICATE", 1)
    reader = spark.read.format("disque").option("nodes", addresses(*nodes)).option("queue", "q")
    few = reader.option("ackOnRead", "true").option("maxJobsPerBatch", 7)
    # Spark may stop reading before its tasks have taken as many.
    assert len(few.load().limit(2).collect()) == 2
    left = sum(map(jobs_at, nodes))
    assert 18 <= left < 25
    assert few.option("partitionsPerNode", 3).load().count() == 7
    assert sum(map(jobs_at, nodes)) == left - 7
    every = spark.read.format("disque").option("nodes", addresses(*nodes)).option("queue", "q")
    assert every.option("ackOnRead", "all").load().count() == left - 7
    assert every.option("ackOnRead", "all").load().count() == 0
    assert few.load().count() == 0


def test_headers_are_a_column_where_they_are_asked_for(batch: Reading, node: LiveNode) -> None:
    node.ask("ADDJOB", "q", "one", 0, "RETRY", 600, "HEADERS", 1, "type", "text")
    add(node, "q", 1)
    rows = {bytes(row.body): row.headers for row in batch(withHeaders=True).collect()}
    assert rows.pop(b"one") == [Row(key="type", value=bytearray(b"text"))]
    assert list(rows.values()) == [None]


def test_queues_of_a_pattern_are_read(spark: SparkSession, node: LiveNode, tmp_path: Path) -> None:
    for queue in ("mail.a", "mail.b", "other"):
        add(node, queue, 5)
    reader = spark.read.format("disque").option("nodes", addresses(node)).option("fetch", 2)
    reader = reader.option("queuePattern", "mail.*").option("minPartitions", 3)
    frame = reader.option("leaseQueue", "test").load()
    assert frame.rdd.getNumPartitions() == 3
    assert sorted(row.queue for row in frame.collect()) == ["mail.a"] * 5 + ["mail.b"] * 5


def test_the_progress_of_a_stream_tells_what_is_behind_it(
    spark: SparkSession, node: LiveNode, tmp_path: Path
) -> None:
    heard: list[dict[str, object]] = []
    listener = ProgressListener(heard.append)
    spark.streams.addListener(listener)
    try:
        add(node, "q", 30)
        Stream(spark, tmp_path, node).run(maxJobsPerBatch=20, queuePattern="q")
        wait_until(lambda: len(heard) >= 2)
    finally:
        spark.streams.removeListener(listener)
    first = heard[0]["sources"][0]  # type: ignore[index]
    assert first["description"] == f"disque: pattern q at {addresses(node)}"
    assert first["metrics"]["totalJobsBehindLatest"] == "10"
    assert heard[1]["sources"][0]["metrics"]["totalJobsBehindLatest"] == "0"  # type: ignore[index]


def test_an_option_that_is_missing_is_named(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match="leaseQueue: expected a name"):
        spark.read.format("disque").option("queue", "q").load().collect()


@pytest.mark.parametrize("more", [{}, {"leaseQueue": "a"}, {"ackOnRead": "true"}])
def test_a_lease_directory_is_refused_with_what_to_do(
    spark: SparkSession, more: dict[str, str]
) -> None:
    reader = spark.read.format("disque").options(queue="q", leaseDirectory="/x", **more)
    with pytest.raises(PySparkException, match=r"leaseDirectory: leases are in Disque .*leaseQ"):
        reader.load()


def test_without_a_node_a_batch_reports_it(batch: Reading) -> None:
    with pytest.raises(PySparkException, match="no node can be reached"):
        batch(nodes=f"127.0.0.1:{free_port()}").collect()
