"""Programs that archive, drain or fill a queue, as processes that can be killed at critical points.

The product has no such points; the classes here add them. A file ``arm-<point>`` arms a point: a
process that gets there writes its process id into ``at-<point>``, and waits to be killed, or for
the file to be removed.
"""

import json
import os
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from disque_spark import holding
from disque_spark.client import Arg, by_ids
from disque_spark.datasources.queues import (
    READ_SCHEMA,
    BatchReader,
    DisqueSource,
    StreamReader,
)
from disque_spark.leases import keeper
from disque_spark.leases.planner import Planner
from disque_spark.leases.queue_batch import QueueDraft
from disque_spark.link import NodeConnections
from disque_spark.sink import writer
from disque_spark.sink.adder import Adder, Refusal
from disque_spark.sink.writer import Added, BatchWriter, StreamWriter
from disque_trio.respclient.blocking import Reply
from packages.spark.tests.support import quick_java

ROWS = 600  # rows to write
FILLING = {"pipeline": "100", "replicate": "2"}
LEASE_QUEUE = "crashing"
_PUBLISH = QueueDraft.publish


class Points:
    """The points in a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def arm(self, point: str) -> None:
        (self.directory / f"arm-{point}").touch()

    def waiting(self, point: str) -> int:
        """The process that waits there, or 0."""
        path = self.directory / f"at-{point}"
        return int(path.read_text()) if path.exists() else 0

    def release(self, point: str) -> None:
        """Let the process that waits there continue, if it is alive."""
        (self.directory / f"at-{point}").unlink()

    def pass_by(self, point: str) -> None:
        """Wait, if the point is armed."""
        own = self.directory / f".{point}-{os.getpid()}"
        try:
            (self.directory / f"arm-{point}").rename(own)
        except FileNotFoundError:
            return
        here = self.directory / f"at-{point}"
        own.write_text(str(os.getpid()))
        own.rename(here)
        while here.exists():
            time.sleep(0.01)


class CrashingSource(DisqueSource):
    """The source ``disque``, with points to stop at."""

    @classmethod
    def name(cls) -> str:
        return "disque-crashing"

    def schema(self) -> StructType:
        return READ_SCHEMA  # whatever the options: there is an additional one

    def reader(self, schema: StructType) -> DataSourceReader:
        return CrashingBatchReader(schema, self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return CrashingReader(schema, self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return CrashingBatchWriter(schema, self.options, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return CrashingStreamWriter(schema, self.options, overwrite)


def stopping(points: Points, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches of ``rows``, stopping between GETJOB and the lease, and in the middle of
    reading."""

    def stop_and_publish(self: QueueDraft, number: int) -> bool:
        points.pass_by("got")
        return _PUBLISH(self, number)

    QueueDraft.publish = stop_and_publish  # type: ignore[method-assign]
    for some in rows:
        yield some
        points.pass_by("reading")


def stop_in_ack(points: Points) -> None:
    """Make this process stop between two ACKJOBs."""

    class HalfLink(NodeConnections):
        """Sends ACKJOB for half of the jobs, stops, and sends it for all."""

        def send(
            self, requests: Sequence[Sequence[Arg]], seconds: float | None = None
        ) -> list[Reply]:
            if requests[0][0] == "ACKJOB":
                ids = [str(id) for request in requests for id in request[1:]]
                super().send(by_ids("ACKJOB", ids[: len(ids) // 2]), seconds)
                points.pass_by("acking")
            return super().send(requests, seconds)

    keeper.NodeConnections = HalfLink  # type: ignore[misc]


class CrashingReader(StreamReader):
    """Stops like any reader, with a batch planned, and between two ACKJOBs."""

    def __init__(self, schema: StructType, options: dict[str, str]) -> None:
        super().__init__(schema, options)
        self.points = Points(Path(options["points"]))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return stopping(self.points, super().read(partition))

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:
        latest = super().latestOffset(start, limit)
        if latest != start:
            self.points.pass_by("planned")
        return latest

    def _plan(self) -> Planner:
        stop_in_ack(self.points)
        return super()._plan()


class CrashingBatchReader(BatchReader):
    """Stops like any reader, and with a batch planned."""

    def __init__(self, schema: StructType, options: dict[str, str]) -> None:
        super().__init__(schema, options)
        self.points = Points(Path(options["points"]))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return stopping(self.points, super().read(partition))

    def partitions(self) -> Sequence[InputPartition]:
        parts = super().partitions()
        self.points.pass_by("planned")
        return parts


def add_stopping(points: Points) -> None:
    """Make this process stop when some of the jobs are added."""

    class CrashingAdder(Adder):
        def add(self, jobs: Sequence[Sequence[Arg]]) -> list[Refusal]:
            refused = super().add(jobs)
            points.pass_by("adding")
            return refused

    writer.Adder = CrashingAdder  # type: ignore[misc]


class CrashingBatchWriter(BatchWriter):
    """Stops when some of the jobs are added, and when all are."""

    def __init__(self, schema: StructType, options: dict[str, str], overwrite: bool) -> None:
        super().__init__(schema, options, overwrite)
        self.points = Points(Path(options["points"]))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Added:
        add_stopping(self.points)
        return super().write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.points.pass_by("added")
        super().commit(messages)


class CrashingStreamWriter(StreamWriter):
    """Stops like the batch writer."""

    def __init__(self, schema: StructType, options: dict[str, str], overwrite: bool) -> None:
        super().__init__(schema, options, overwrite)
        self.points = Points(Path(options["points"]))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Added:
        add_stopping(self.points)
        return super().write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.points.pass_by("added")
        super().commit(messages, batchId)


class Program:
    """The work of the process until the file ``stop`` exists; failures are retried.

    Args:
        directory: for all its files.
        nodes, queue: where jobs are.
        master: of Spark.
    """

    def __init__(self, directory: Path, nodes: str, queue: str, master: str) -> None:
        self.directory = directory
        self.points = Points(directory)
        self.options = {"nodes": nodes, "queue": queue, "points": str(directory)}
        self.session = (
            SparkSession.builder.master(master)
            .config("spark.ui.enabled", "false")
            .config("spark.driver.memory", "512m")
            .config("spark.executor.memory", "512m")
            .config("spark.driver.extraJavaOptions", quick_java.OPTIONS)
            .config("spark.executor.extraJavaOptions", quick_java.OPTIONS)
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.sql.shuffle.partitions", "2")
            .config(map=quick_java.SETTINGS)
            .config("spark.local.dir", str(directory / "local"))
            .config("spark.ui.showConsoleProgress", "false")
            .getOrCreate()
        )
        self.session.dataSource.register(CrashingSource)
        gateway = SparkContext._gateway
        assert gateway is not None
        jvm = directory / ".jvm"
        jvm.write_text(str(gateway.proc.pid))  # type: ignore[attr-defined]
        jvm.rename(directory / "jvm")

    def say(self, **what: object) -> None:
        print(json.dumps({"time": time.time(), **what}), flush=True)

    def stopped(self) -> bool:
        return (self.directory / "stop").exists()

    def follow(self, query: StreamingQuery) -> None:
        self.say(started=str(query.runId))
        try:
            while not query.awaitTermination(0.2) and not self.stopped():
                pass
            query.stop()
        except StreamingQueryException as problem:
            self.say(failed=str(problem)[:2000])

    def archive(self) -> None:
        """Stream the queue into ``archive/batch=<number>``."""

        def sink(frame: DataFrame, batch: int) -> None:
            frame.write.mode("overwrite").parquet(
                str(self.directory / "archive" / f"batch={batch}")
            )
            self.points.pass_by("sunk")

        reader = self.session.readStream.format(CrashingSource.name()).options(
            maxJobsPerBatch="400",
            fetch="100",
            heartbeat="1",
            leaseQueue=LEASE_QUEUE,
            **self.options,
        )
        checkpoint = str(self.directory / "checkpoint")
        stream = reader.load().writeStream.foreachBatch(sink)
        self.follow(stream.option("checkpointLocation", checkpoint).start())

    def drain(self) -> None:
        """Repeatedly write a frame of the queued jobs into a new directory."""
        path = self.directory / "archive" / f"batch={uuid.uuid4().hex}"
        stop_in_ack(self.points)
        try:
            with holding(nodes=self.options["nodes"], lease_queue=LEASE_QUEUE, heartbeat=1):
                reader = self.session.read.format(CrashingSource.name())
                frame = reader.options(leaseQueue=LEASE_QUEUE, **self.options).load()
                frame.write.parquet(str(path))
                self.points.pass_by("sunk")
        except (PySparkException, Py4JJavaError) as problem:
            self.say(failed=str(problem)[:2000])

    def fill(self) -> None:
        """Write a frame into the queue, once."""
        if (self.directory / "filled").exists():
            time.sleep(0.05)
            return
        frame = self.session.range(ROWS).selectExpr("concat('body ', id) as body").repartition(2)
        try:
            out = frame.write.format(CrashingSource.name()).mode("append")
            out.options(**FILLING, **self.options).save()
        except (PySparkException, Py4JJavaError) as problem:
            self.say(failed=str(problem)[:2000])
        else:
            (self.directory / "filled").touch()

    def sink(self) -> None:
        """Stream the lines of the files in ``in`` into the queue."""
        lines = self.session.readStream.text(str(self.directory / "in"))
        out = lines.withColumnRenamed("value", "body").writeStream
        checkpoint = str(self.directory / "checkpoint")
        options = {"checkpointLocation": checkpoint, **FILLING, **self.options}
        self.follow(out.format(CrashingSource.name()).options(**options).start())


def main(directory: Path, nodes: str, queue: str, what: str, master: str) -> None:
    """Run one method of a ``Program`` until the file ``stop`` exists."""
    program = Program(directory, nodes, queue, master)
    act = {
        "archive": program.archive,
        "drain": program.drain,
        "fill": program.fill,
        "sink": program.sink,
    }[what]
    while not program.stopped():
        act()
    program.session.stop()


if __name__ == "__main__":
    # Workers must find pickled objects under the name of the module.
    from packages.spark.tests.support import crash_app

    crash_app.main(Path(sys.argv[1]), *sys.argv[2:])
