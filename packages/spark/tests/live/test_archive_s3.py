"""Archives on S3, with a server that speaks its protocol, and without Hadoop's connector."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from disque_spark.archive import Archive, read_archive
from disque_spark.files import location
from packages.spark.tests.support.s3 import Bucket
from tests.support.harness import NodeFactory

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]
NOTHING = [b"0", []]


def test_a_queue_is_archived_there_and_read_back(
    spark: SparkSession, disque_server: NodeFactory, s3: Bucket, tmp_path: Path
) -> None:
    """Executors know the server from the environment of the program; leases are in Disque."""
    node = disque_server()
    for n in range(20):
        assert isinstance(node.ask("ADDJOB", "q", f"order {n}", 0, "RETRY", 600), bytes)
    table = f"{s3.uri}/archive"
    place = location(table, s3.settings)
    nodes = [f"127.0.0.1:{node.port}"]
    checkpoint = str(tmp_path / "checkpoint")
    archive = Archive(nodes, ["q"], place, available_now=True, checkpoint=checkpoint)
    assert archive.follow(archive.start(spark), lambda text: None) == 20
    archive.acknowledge()
    bodies = sorted(bytes(row["body"]).decode() for row in read_archive(spark, place).collect())
    assert bodies == sorted(f"order {n}" for n in range(20))
    left = node.ask("JSCAN", 0, "BUSYLOOP", "QUEUE", "q")
    assert left == NOTHING
