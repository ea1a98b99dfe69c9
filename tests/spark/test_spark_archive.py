"""Archiving queues of real nodes into tables."""

from pathlib import Path

import pytest
from harness import LiveNode, NodeFactory
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from disque_trio.spark.archive import Archive, follow, read_archive

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]


def add(node: LiveNode, queue: str, bodies: list[str]) -> None:
    wire = node.wire()
    for body in bodies:
        assert isinstance(wire("ADDJOB", queue, body, 0, "RETRY", 600), bytes)


def archive_of(node: LiveNode, table: Path, *queues: str) -> Archive:
    return Archive([f"127.0.0.1:{node.port}"], queues, table, available_now=True)


def run(spark: SparkSession, archive: Archive) -> int:
    said: list[str] = []
    total = follow(archive.start(spark), said.append)
    assert said or not total
    return total


def test_all_that_is_queued_is_archived_once_and_acknowledged(
    spark: SparkSession, disque_server: NodeFactory, tmp_path: Path
) -> None:
    node = disque_server()
    archive = archive_of(node, tmp_path / "table", "orders", "mail/in")
    add(node, "orders", [f"order {n}" for n in range(120)])
    add(node, "mail/in", ["letter"])
    assert run(spark, archive) == 121
    add(node, "orders", ["late"])
    # The run after it acknowledges what the last batch of the one before had, too.
    assert run(spark, archive) == 1
    assert run(spark, archive) == 0
    rows = read_archive(spark, tmp_path / "table").collect()
    bodies = sorted(bytes(row["body"]).decode() for row in rows)
    assert bodies == sorted([f"order {n}" for n in range(120)] + ["letter", "late"])
    assert {row["queue"] for row in rows} == {"orders", "mail/in"}
    assert all(row["archived_at"].date() == row["day"] for row in rows)
    assert node.ask("JSCAN", 0, "BUSYLOOP", "STATE", "queued", "STATE", "active") == [b"0", []]


def test_the_table_is_partitioned_by_queue_and_day(
    spark: SparkSession, disque_server: NodeFactory, tmp_path: Path
) -> None:
    node = disque_server()
    add(node, "a", ["1"])
    add(node, "b", ["2"])
    run(spark, archive_of(node, tmp_path / "table", "a", "b"))
    parts = {path.parent.name for path in (tmp_path / "table").glob("queue=*/day=*")}
    assert parts == {"queue=a", "queue=b"}
    one = spark.read.parquet(str(tmp_path / "table")).where(f.col("queue") == "a")
    assert one.count() == 1


def test_a_job_that_was_delivered_twice_is_read_once(spark: SparkSession, tmp_path: Path) -> None:
    rows = [("x", "q", b"1"), ("x", "q", b"1"), ("y", "q", b"2")]
    spark.createDataFrame(rows, "id string, queue string, body binary").write.parquet(
        str(tmp_path / "table")
    )
    assert read_archive(spark, tmp_path / "table").count() == 2


def test_an_archive_that_is_not_there_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_archive(spark, tmp_path / "nowhere")
