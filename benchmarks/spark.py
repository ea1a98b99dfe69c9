"""The speed of Spark writing jobs to a node, reading them as a frame and as a stream, and acking.

The node, the driver and its workers share the cores of this machine. The table shows the best
round, because other load only adds to it, and the CPU seconds of the node and Spark per million
jobs in the same round.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from disque_spark import ack
from disque_spark.session import session
from tools.bench.cli import Findings, option, table
from tools.bench.servers import CPUS, Server, disque_server, family_cpu_seconds

PINNED = False
WARM_UP = 20_000  # jobs
SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure."""

    jobs: int = option(200_000, "in each step", quick=200)
    size: int = option(110, "bytes of a body")
    rounds: int = option(2, "how often everything is measured", quick=1)
    warm_up: int = option(WARM_UP, "jobs for the warm-up", quick=200)


@dataclass(frozen=True, slots=True)
class Rate:
    """The cost of a step: wall and CPU seconds."""

    name: str
    jobs: int
    clock: float
    node: float
    spark: float

    def row(self) -> list[str]:
        """Its row in the table."""
        million = 1_000_000 / self.jobs
        cpu = (f"{self.node * million:.1f}", f"{self.spark * million:.1f}")
        return [self.name, f"{self.jobs / self.clock:,.0f}", *cpu]


BATCH = "batch"  # the leases of batch reads


class Rates:
    """The steps, for one node and one session.

    Args:
        size: bytes of a body. directory: for checkpoints and tables.
    """

    def __init__(self, spark: SparkSession, server: Server, size: int, directory: Path) -> None:
        self._spark = spark
        self._server = server
        self._size = size
        self._directory = directory
        self._turn = 0
        self.best: dict[str, Rate] = {}

    def round(self, jobs: int, counts: bool = True) -> None:
        """Run all steps with ``jobs`` jobs."""
        for tasks in (1, 2):
            what = f"write at least once, {tasks} task{'s' * (tasks > 1)}"
            with self._measured(what, jobs, counts):
                self._write(jobs, tasks)
            with self._measured("batch read", jobs, counts):
                self._read()
            with self._measured("`ack`", jobs, counts):
                acknowledged = ack(nodes=self._options()["nodes"], lease_queue=BATCH)
            assert acknowledged == jobs, acknowledged
        self._write(jobs, 2)
        with self._measured("stream into Parquet, with ACKJOBs", jobs, counts):
            rows = self._stream()
        assert rows == jobs, rows

    def _write(self, jobs: int, tasks: int) -> None:
        frame = self._spark.range(0, jobs, 1, tasks)
        rows = frame.selectExpr(f"rpad(concat('job ', id), {self._size}, '.') as body")
        options = {"mode": "at-least-once", **self._options()}
        rows.write.format("disque").mode("append").options(**options).save()

    def _read(self) -> None:
        reader = self._spark.read.format("disque").options(**self._options())
        frame = reader.options(leaseQueue=BATCH).load()
        frame.write.format("noop").mode("overwrite").save()

    def _stream(self) -> int:
        self._turn += 1
        directory = self._directory / f"stream-{self._turn}"
        reader = self._spark.readStream.format("disque").options(**self._options())
        reader = reader.option("leaseQueue", directory.name)
        writer = reader.option("maxJobsPerBatch", "10000").load().writeStream.format("parquet")
        writer = writer.option("path", str(directory / "table"))
        writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return sum(progress["numInputRows"] for progress in query.recentProgress)

    def _options(self) -> dict[str, str]:
        return {"nodes": f"127.0.0.1:{self._server.port}", "queue": "q"}

    @contextmanager
    def _measured(self, name: str, jobs: int, counts: bool) -> Iterator[None]:
        pid = self._server.process.pid

        def used() -> tuple[float, float, float]:
            spark = family_cpu_seconds([os.getpid()], without=(pid,))
            return time.monotonic(), self._server.cpu_seconds(), spark

        before = used()
        yield
        clock, node, spark = (b - a for a, b in zip(before, used(), strict=True))
        rate = Rate(name, jobs, clock, node, spark)
        if counts and (name not in self.best or clock < self.best[name].clock):
            self.best[name] = rate


def run(plan: Plan) -> Findings:
    """Measures all steps in every round."""
    with tempfile.TemporaryDirectory(prefix="spark-rates-") as name:
        directory = Path(name)
        spark = session("local[2]", SETTINGS)
        try:
            with disque_server(cpus=CPUS) as server:
                rates = Rates(spark, server, plan.size, directory)
                rates.round(plan.warm_up, counts=False)
                for _ in range(plan.rounds):
                    rates.round(plan.jobs)
        finally:
            spark.stop()
    titles = ["", "jobs/s", "CPU s of the node for a million jobs", "CPU s of Spark"]
    load = os.getloadavg()[0]
    return Findings(
        f"{plan.jobs:,} jobs of {plan.size} bytes, {os.cpu_count()} cores, load {load:.1f}\n\n"
        + table(titles, [rate.row() for rate in rates.best.values()]),
        list(rates.best.values()),
    )
