"""How fast Spark writes jobs into a node, reads them as a frame and as a stream, and acks them.

    python -m tools.bench.spark_rates [--jobs N] [--size BYTES] [--rounds N]

The node, the driver and its workers share the cores of this machine. Shown are the best of the
rounds, since whatever else the machine does only adds to it, and for the same round the CPU seconds
that a million jobs cost the node and Spark.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from disque_trio.spark import ack, register
from tools.bench.servers import Server, disque_server

TICKS = os.sysconf("SC_CLK_TCK")
WARM_UP = 20_000  # jobs


@dataclass(frozen=True, slots=True)
class Rate:
    """What a step took; seconds, of the clock and of CPUs."""

    name: str
    jobs: int
    clock: float
    node: float
    spark: float

    def line(self) -> str:
        million = 1_000_000 / self.jobs
        return (
            f"| {self.name} | {self.jobs / self.clock:,.0f} | {self.node * million:.1f}"
            f" | {self.spark * million:.1f} |"
        )


def spark_seconds(node: int) -> float:
    """CPU seconds of this process and all that it has started, but for ``node``."""
    parents: dict[int, int] = {}
    used: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        pid = int(path.parent.name)
        parents[pid] = int(fields[1])
        used[pid] = sum(int(field) for field in fields[11:15])
    own = 0
    for pid in used:
        line = pid
        while line not in (0, node, os.getpid()):
            line = parents.get(line, 0)
        own += used[pid] if line == os.getpid() else 0
    return own / TICKS


class Rates:
    """The steps, for one node and one session.

    Args:
        size: bytes of a body. directory: for leases, checkpoints and tables.
    """

    def __init__(self, spark: SparkSession, server: Server, size: int, directory: Path) -> None:
        self._spark = spark
        self._server = server
        self._size = size
        self._directory = directory
        self._turn = 0
        self.best: dict[str, Rate] = {}

    def round(self, jobs: int, counts: bool = True) -> None:
        """All steps with so many jobs."""
        for tasks in (1, 2):
            with self._measured(f"write, {tasks} task{'s' * (tasks > 1)}", jobs, counts):
                self._write(jobs, tasks)
            with self._measured("batch read, with leases", jobs, counts):
                self._read()
            with self._measured("`ack`", jobs, counts):
                acknowledged = ack(self._directory / "batch")
            assert acknowledged == jobs, acknowledged
        self._write(jobs, 2)
        with self._measured("stream into Parquet, with leases and ACKJOBs", jobs, counts):
            rows = self._stream()
        assert rows == jobs, rows

    def _write(self, jobs: int, tasks: int) -> None:
        frame = self._spark.range(0, jobs, 1, tasks)
        rows = frame.selectExpr(f"rpad(concat('job ', id), {self._size}, '.') as body")
        rows.write.format("disque").mode("append").options(**self._options()).save()

    def _read(self) -> None:
        leases = str(self._directory / "batch")
        reader = self._spark.read.format("disque").options(**self._options())
        frame = reader.option("leaseDirectory", leases).load()
        frame.write.format("noop").mode("overwrite").save()

    def _stream(self) -> int:
        self._turn += 1
        directory = self._directory / f"stream-{self._turn}"
        reader = self._spark.readStream.format("disque").options(**self._options())
        reader = reader.option("leaseDirectory", str(directory / "leases"))
        writer = reader.option("maxJobsPerBatch", "20000").load().writeStream.format("parquet")
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
        before = (time.monotonic(), self._server.cpu_seconds(), spark_seconds(pid))
        yield
        after = (time.monotonic(), self._server.cpu_seconds(), spark_seconds(pid))
        clock, node, spark = (b - a for a, b in zip(before, after, strict=True))
        rate = Rate(name, jobs, clock, node, spark)
        if counts and (name not in self.best or clock < self.best[name].clock):
            self.best[name] = rate


def session(directory: Path) -> SparkSession:
    """On two cores."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.local.dir", str(directory / "local"))
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    register(spark)
    return spark


def main(arguments: list[str] | None = None, out: Callable[[str], object] = print) -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--jobs", type=int, default=200_000, help="in each step")
    parser.add_argument("--size", type=int, default=110, help="bytes of a body")
    parser.add_argument("--rounds", type=int, default=2)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="spark-rates-") as name:
        directory = Path(name)
        spark = session(directory)
        try:
            with disque_server(cpus=os.sched_getaffinity(0)) as server:
                rates = Rates(spark, server, chosen.size, directory)
                rates.round(WARM_UP, counts=False)
                for _ in range(chosen.rounds):
                    rates.round(chosen.jobs)
        finally:
            spark.stop()
    load = os.getloadavg()[0]
    out(f"{chosen.jobs:,} jobs of {chosen.size} bytes, {os.cpu_count()} cores, load {load:.1f}")
    out("| | jobs/s | CPU s of the node for a million jobs | CPU s of Spark |")
    out("|---|---|---|---|")
    for rate in rates.best.values():
        out(rate.line())


if __name__ == "__main__":
    main()
