"""A stream that archives a queue, as a process of its own that can be killed where it hurts.

The product has no place to stop at; the classes here add some. A point is armed by a file
``arm-<point>``: who comes by leaves ``at-<point>`` with its process id, and waits to be killed, or
for the file to go.
"""

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark import SparkContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from disque_trio.spark import holder, taking
from disque_trio.spark.leases import LeaseFile
from disque_trio.spark.planning import Planner
from disque_trio.spark.read import DisqueSource, StreamReader
from disque_trio.spark.wire import Wire


class Points:
    """The points of a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def arm(self, point: str) -> None:
        (self.directory / f"arm-{point}").touch()

    def waiting(self, point: str) -> int:
        """The process that waits there, 0 if none does."""
        path = self.directory / f"at-{point}"
        return int(path.read_text()) if path.exists() else 0

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
    """``disque`` whose reader stops at points."""

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return CrashingReader(schema, self.options)


class CrashingReader(StreamReader):
    """Stops after GETJOB before the lease, mid read, with a batch planned, between two ACKJOBs."""

    def __init__(self, schema: StructType, options: dict[str, str]) -> None:
        super().__init__(schema, options)
        self.points = Points(Path(options["points"]))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        points = self.points

        class CrashingLease(LeaseFile):
            def publish(self, number: int) -> bool:
                points.pass_by("got")
                return super().publish(number)

        taking.LeaseFile = CrashingLease  # type: ignore[misc]
        for rows in super().read(partition):
            yield rows
            points.pass_by("reading")

    def latestOffset(self, start: dict[str, object], limit: ReadLimit) -> dict[str, object]:
        latest = super().latestOffset(start, limit)
        if latest != start:
            self.points.pass_by("planned")
        return latest

    def _plan(self) -> Planner:
        def half(wire: Wire, ids: Sequence[str | bytes]) -> None:
            taking.acknowledge(wire, ids[: len(ids) // 2])
            self.points.pass_by("acking")
            taking.acknowledge(wire, ids)

        holder.acknowledge = half
        return super()._plan()


def main(directory: Path, nodes: str, queue: str) -> None:
    """Archive ``queue`` until the file ``stop`` is there. A query that fails is started again."""
    points = Points(directory)
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.local.dir", str(directory / "local"))
        .getOrCreate()
    )
    session.dataSource.register(CrashingSource)
    gateway = SparkContext._gateway
    assert gateway is not None
    jvm = directory / ".jvm"
    jvm.write_text(str(gateway.proc.pid))  # type: ignore[attr-defined]
    jvm.rename(directory / "jvm")

    def archive(frame: DataFrame, batch: int) -> None:
        frame.write.mode("overwrite").parquet(str(directory / "archive" / f"batch={batch}"))
        points.pass_by("sunk")

    while not (directory / "stop").exists():
        query = (
            session.readStream.format("disque")
            .options(
                nodes=nodes,
                queue=queue,
                leaseDirectory=str(directory / "leases"),
                maxJobsPerBatch="400",
                fetch="100",
                heartbeat="1",
                points=str(directory),
            )
            .load()
            .writeStream.foreachBatch(archive)
            .option("checkpointLocation", str(directory / "checkpoint"))
            .start()
        )
        print(json.dumps({"time": time.time(), "started": str(query.runId)}), flush=True)
        try:
            while not query.awaitTermination(0.2) and not (directory / "stop").exists():
                pass
            query.stop()
        except StreamingQueryException as problem:
            print(json.dumps({"time": time.time(), "failed": str(problem)[:2000]}), flush=True)
    session.stop()


if __name__ == "__main__":
    # What is pickled has to be found by workers under the name of the module.
    import crash_app

    crash_app.main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
