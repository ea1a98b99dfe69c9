"""A Spark stream of jobs that reports its backlog to Prometheus and on the terminal.

python examples/spark/backlog.py 127.0.0.1:7711 orders
curl -s http://127.0.0.1:9103/metrics | grep disque_spark_queue_behind
"""

import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from disque_spark import register
from disque_spark.metrics import serve_metrics
from disque_spark.progress import ProgressListener


def work(batch: DataFrame, number: int) -> None:
    """Process the jobs of a batch."""
    print(f"batch {number}: {batch.count()} jobs")


def main(nodes: str, queue: str) -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.master("local[*]").getOrCreate()
    register(spark)
    serve_metrics(spark, "127.0.0.1", 9103)
    spark.streams.addListener(ProgressListener(lambda heard: print(heard["sources"][0]["metrics"])))
    place = Path(tempfile.gettempdir()) / "spark-backlog"
    jobs = spark.readStream.format("disque").options(
        nodes=nodes, queuePattern=queue, leaseQueue="backlog", maxJobsPerBatch=1000
    )
    writer = jobs.load().writeStream.foreachBatch(work).queryName("backlog")
    query = writer.option("checkpointLocation", str(place / "checkpoint")).start()
    with suppress(KeyboardInterrupt):
        query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
