"""Archives on S3: a server that speaks it, and no connector of Hadoop's."""

from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from disque_trio.spark import pipeline
from disque_trio.spark.archive import Archive, read_archive
from disque_trio.spark.files import location
from disque_trio.spark.lakehouse.files import read
from disque_trio.spark.lakehouse.parquet import ParquetFiles
from disque_trio.spark.lakehouse.table import Upkeep
from tests.support.harness import NodeFactory
from tests.support.jobs_files import DAY, add
from tests.support.s3 import Bucket, s3, s3_server

__all__ = ["s3", "s3_server"]

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]
NOTHING = [b"0", []]


def ids_of(table: ParquetFiles) -> list[str]:
    return sorted(
        one.as_py() for file in table.files() for rows in read(file.path) for one in rows["id"]
    )


def test_batches_are_there_once_and_are_merged(s3: Bucket) -> None:
    place = location(f"{s3.uri}/archive")
    noon = 1_795_521_600.0  # of that day
    table = ParquetFiles(place)
    for number in range(5):
        add(table, place, number, [f"{number}"], "mail/in ü")
    add(table, place, 4, ["4"], "mail/in ü")
    add(table, place, 5, ["old"], day=DAY - timedelta(9))
    add(table, place, 6, ["last"])
    outcome = table.keep_up(Upkeep(older=-3600, grace=0), lambda text: None)
    assert (outcome.before, outcome.after, outcome.removed) == (5, 1, 5)
    assert ids_of(table) == ["0", "1", "2", "3", "4", "last", "old"]
    assert len(table.files()) == 3
    later = ParquetFiles(place, clock=lambda: noon)
    assert later.keep_up(Upkeep(days=2), lambda text: None).days == ["queue=q/day=2026-11-15"]
    assert ids_of(table) == ["0", "1", "2", "3", "4", "last"]
    assert not [file for file in place.files() if "_staging" in file.path]


def test_a_queue_is_archived_there_and_read_back(
    spark: SparkSession, disque_server: NodeFactory, s3: Bucket, tmp_path: Path
) -> None:
    """Executors know the server by the environment of the program; leases are in Disque."""
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
    assert pipeline.main(["compact", table, "--older-than", "0", "--grace", "0"]) == 0
