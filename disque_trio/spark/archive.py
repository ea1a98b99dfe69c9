"""Queues into a table: a stream that acknowledges jobs when they are in committed files.

The table is partitioned by queue and day. Its checkpoint and its leases are beside the files, in
directories that readers of the table skip. A job that was delivered twice is there twice: see
``read_archive``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

CHECKPOINT = "_checkpoint"
LEASES = "_leases"
PARTITIONS = ("queue", "day")
_LOOK_SECONDS = 1


@dataclass(frozen=True)
class Archive:
    """What goes where.

    Attributes:
        nodes: ``host:port`` each.
        queues: names.
        table: its directory.
        source, format: of Spark: where jobs come from, and what the files are.
        seconds: between batches; 0: one after the other.
        available_now: end when what is queued now is in the table.
        options: more, for the source.
    """

    nodes: Sequence[str]
    queues: Sequence[str]
    table: Path
    source: str = "disque"
    format: str = "parquet"
    seconds: int = 10
    available_now: bool = False
    options: Mapping[str, str] = field(default_factory=dict)

    def jobs(self, spark: SparkSession) -> DataFrame:
        """The rows of the table, as a stream."""
        options = {
            "nodes": ",".join(self.nodes),
            "queues": ",".join(self.queues),
            "leaseDirectory": str(self.table / LEASES),
            **self.options,
        }
        rows = spark.readStream.format(self.source).options(**options).load()
        # The time of the batch: a batch that is repeated has the same.
        now = f.current_timestamp()
        return rows.select("*", now.alias("archived_at"), f.to_date(now).alias("day"))

    def start(self, spark: SparkSession) -> StreamingQuery:
        """Begin, or go on where an earlier run has ended."""
        writer = (
            self.jobs(spark)
            .writeStream.format(self.format)
            .partitionBy(*PARTITIONS)
            .option("checkpointLocation", str(self.table / CHECKPOINT))
            .option("path", str(self.table))
            .outputMode("append")
            .queryName(f"archive {','.join(self.queues)}")
        )
        if self.available_now:
            writer = writer.trigger(availableNow=True)
        elif self.seconds:
            writer = writer.trigger(processingTime=f"{self.seconds} seconds")
        return writer.start()


def follow(query: StreamingQuery, progress: Callable[[str], None]) -> int:
    """Wait for the end of a stream. Returns how many rows it wrote.

    Args:
        progress: is told now and then.

    Raises:
        StreamingQueryException: it failed.
    """
    total = 0
    batch = -1
    ended = False
    while not ended:
        ended = bool(query.awaitTermination(_LOOK_SECONDS))
        for done in query.recentProgress:
            if done["batchId"] > batch:
                batch = done["batchId"]
                total += done["numInputRows"]
                progress(f"batch {batch}: {total} jobs")
    return total


def read_archive(spark: SparkSession, table: Path, format: str = "parquet") -> DataFrame:
    """The jobs of an archive, each once.

    Raises:
        FileNotFoundError: there is none.
    """
    if not table.is_dir():
        raise FileNotFoundError(f"no archive at {table}")
    return spark.read.format(format).load(str(table)).dropDuplicates(["id"])
