"""Archiving queues of real nodes into tables."""

import json
import os
import signal
from contextlib import closing
from dataclasses import replace
from datetime import date
from pathlib import Path

import pyarrow.dataset
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from disque_spark.archive import (
    LEASES,
    Archive,
    ArchiveError,
    make_directory,
    read_archive,
)
from disque_spark.files import location
from disque_spark.lakehouse.bodies import decoded
from disque_spark.lakehouse.columns import BAD
from disque_spark.lakehouse.formats import table_of
from disque_spark.lakehouse.settings import TableError, TableSettings
from disque_spark.lakehouse.table import Table, Upkeep
from disque_spark.leases.cells import QueueCells
from disque_spark.leases.lock import number_of
from packages.spark.tests.support.lease_reader import left_at
from tests.support.harness import LiveNode, NodeFactory, wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

NOTHING: list[object] = []
SECOND = date(2026, 1, 2)


def add(node: LiveNode, queue: str, bodies: list[str]) -> None:
    wire = node.wire()
    for body in bodies:
        assert isinstance(wire("ADDJOB", queue, body, 0, "RETRY", 600), bytes)


def archive_of(node: LiveNode, table: Path, *queues: str) -> Archive:
    return Archive([f"127.0.0.1:{node.port}"], queues, table, available_now=True)


def run(spark: SparkSession, archive: Archive) -> int:
    said: list[str] = []
    total = archive.follow(archive.start(spark), said.append)
    assert said or not total
    return total


def bodies_of(table: DataFrame) -> list[str]:
    return sorted(bytes(row["body"]).decode() for row in table.collect())


def test_all_that_is_queued_is_archived_once_and_acknowledged(
    spark: SparkSession, disque_server: NodeFactory, tmp_path: Path
) -> None:
    """They are in partitions by queue and day. Names of queues stay text, whatever they look
    like."""
    node = disque_server()
    archive = archive_of(node, tmp_path / "table", "007", "mail/in")
    add(node, "007", [f"order {n}" for n in range(120)])
    add(node, "mail/in", ["letter"])
    assert run(spark, archive) == 121
    headers = ("HEADERS", 1, "kind", "late")
    assert isinstance(node.ask("ADDJOB", "007", "late", 0, "RETRY", 600, *headers), bytes)
    # Additional columns of the source are in the table, and null in older files.
    archive = replace(archive, options={"withHeaders": "true"})
    # The next run also acknowledges the last batch of the previous one.
    assert run(spark, archive) == 1
    assert run(spark, archive) == 0
    rows = read_archive(spark, tmp_path / "table").collect()
    bodies = sorted(bytes(row["body"]).decode() for row in rows)
    assert bodies == sorted([f"order {n}" for n in range(120)] + ["letter", "late"])
    assert {row["queue"] for row in rows} == {"007", "mail/in"}
    found = [row["headers"] for row in rows if row["headers"]]
    assert [(header.key, bytes(header.value)) for header in found[0]] == [("kind", b"late")]
    assert len(found) == 1
    assert all(row["archived_at"].date() == row["day"] for row in rows)
    assert left_at(node) == NOTHING
    parts = {path.parent.name for path in (tmp_path / "table").glob("queue=*/day=*")}
    assert parts == {"queue=007", "queue=mail%2Fin"}
    # Other programs see the same.
    table = pyarrow.dataset.dataset(tmp_path / "table").to_table(["body"])
    assert sorted(body.decode() for body in table.column("body").to_pylist()) == bodies


def test_a_batch_that_is_repeated_replaces_its_own_files(
    spark: SparkSession, disque_server: NodeFactory, tmp_path: Path
) -> None:
    """As if the driver dies when the files are in the table, before Spark's commit."""
    node = disque_server()
    table = tmp_path / "table"
    archive = archive_of(node, table, "q")
    add(node, "q", ["1", "2"])
    run(spark, archive)
    add(node, "q", ["3", "4"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Archive, "_add", adds_and_fails)
        with pytest.raises(StreamingQueryException):
            run(spark, archive)
    before = sorted(table.glob("queue=*/day=*/*.parquet"))
    assert len(before) == 2
    assert run(spark, archive) == 2
    assert sorted(table.glob("queue=*/day=*/*.parquet")) == before
    assert bodies_of(read_archive(spark, table)) == ["1", "2", "3", "4"]
    assert left_at(node) == NOTHING


_add = Archive._add


def adds_and_fails(archive: Archive, table: Table, batch: DataFrame, number: int) -> None:
    _add(archive, table, batch, number)
    raise ArchiveError("it died here")


def test_a_stream_that_is_told_to_stop_finishes_its_batch_and_acknowledges_it(
    spark: SparkSession, disque_server: NodeFactory, tmp_path: Path
) -> None:
    node = disque_server()
    table = tmp_path / "table"
    add(node, "q", [f"{n}" for n in range(20)])
    archive = Archive([f"127.0.0.1:{node.port}"], ["q"], table, seconds=3600)
    stop = False

    def progress(text: str) -> None:
        nonlocal stop
        stop = True

    assert archive.follow(archive.start(spark), progress, lambda: stop) == 20
    archive.acknowledge()
    assert left_at(node) == NOTHING
    # Batches that have begun when it is told to stop are finished; no others begin.
    archive = Archive(
        [f"127.0.0.1:{node.port}"], ["q"], table, seconds=0, options={"maxJobsPerBatch": "10"}
    )
    add(node, "q", [f"{n}" for n in range(20, 50)])
    query = archive.start(spark)
    wait_until(lambda: len(list(table.glob("queue=q/*/*.parquet"))) > 1)
    total = archive.follow(query, lambda text: None, lambda: True)
    archive.acknowledge()
    assert query.isActive is False
    assert total == 30 - len(left_at(node))
    assert read_archive(spark, table).count() == 20 + total
    assert run(spark, archive_of(node, table, "q")) == 30 - total
    assert left_at(node) == NOTHING


def driver_of(archive: Archive) -> int:
    """The process that has locked the leases of an archive."""
    place = archive.leases()
    with closing(QueueCells(place.queue, place.nodes)) as cells:
        [lock] = [cell for cell in cells.scan() if number_of(cell)]
    return int(json.loads(lock.body)["pid"])


def test_an_archive_whose_worker_is_killed_goes_on_until_it_is_told_to_stop(
    spark: SparkSession, disque_server: NodeFactory, tmp_path: Path
) -> None:
    node = disque_server()
    table = tmp_path / "table"
    archive = Archive([f"127.0.0.1:{node.port}"], ["q"], table, seconds=1)
    add(node, "q", ["1"])
    told: list[str] = []
    said: list[str] = []

    def progress(text: str) -> None:
        if not said:
            os.kill(driver_of(archive), signal.SIGKILL)
            # Earlier jobs could be delivered to the dead process, and would come back only after
            # minutes.
            wait_until(lambda: node.info("clients")["blocked_clients"] == "0")
            add(node, "q", ["2"])
        said.append(text)

    def stop() -> bool:
        return len(told) > 0 and left_at(node) == NOTHING

    assert archive.run(spark, progress, told.append, stop) == 2
    assert len(told) == 1
    archive.acknowledge()
    assert bodies_of(read_archive(spark, table)) == ["1", "2"]


@pytest.mark.parametrize("left", ["batch-00000000000000000007", "done-00000000000000000007"])
def test_leases_that_an_earlier_release_left_with_the_table_are_not_passed_over(
    disque_server: NodeFactory, tmp_path: Path, left: str
) -> None:
    archive = archive_of(disque_server(), tmp_path / "table", "q")
    directory = tmp_path / "table" / LEASES / left
    directory.mkdir(parents=True)
    (directory / "plan.json").write_text("{}")
    with pytest.raises(ArchiveError, match=r"_leases has jobs .* run that release once more"):
        archive.leases()
    (directory / "plan.json").unlink()
    if left.startswith("batch"):
        directory.rmdir()
    first = archive.leases()
    assert archive_of(disque_server(), tmp_path / "table", "q").leases().queue == first.queue
    assert archive_of(disque_server(), tmp_path / "other", "q").leases().queue != first.queue


def test_a_batch_that_cannot_be_written_gives_a_short_reason(
    spark: SparkSession, disque_server: NodeFactory, tmp_path: Path
) -> None:
    node = disque_server()
    add(node, "q", ["1"])
    table = tmp_path / "table"
    archive = archive_of(node, table, "q")
    table.mkdir()
    (table / "queue=q").touch()  # a name that cannot be a directory
    with pytest.raises(StreamingQueryException, match=r"ArchiveError: .*queue=q") as failed:
        run(spark, archive)
    assert len(str(failed.value)) < 5000
    (table / "queue=q").unlink()
    assert run(spark, archive) == 1
    assert left_at(node) == NOTHING


def test_each_directory_that_is_made_is_brought_to_the_disk_by_the_one_above_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr("disque_spark.archive.sync_directory", synced.append)
    leases = tmp_path / "new" / "table" / LEASES
    make_directory(leases)
    assert leases.is_dir()
    assert sorted(synced) == [tmp_path, tmp_path / "new", tmp_path / "new" / "table"]
    make_directory(leases)
    assert len(synced) == 3


def test_a_directory_that_is_not_an_archive_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(ArchiveError):
            read_archive(spark, path)


def test_a_job_that_was_delivered_twice_is_read_once(spark: SparkSession, tmp_path: Path) -> None:
    rows = [("x", "q", b"1"), ("x", "q", b"1"), ("y", "q", b"2")]
    spark.createDataFrame(rows, "id string, queue string, body binary").write.parquet(
        str(tmp_path / "table")
    )
    assert bodies_of(read_archive(spark, tmp_path / "table")) == ["1", "2"]


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_table_with_versions_has_the_jobs_and_their_decoded_bodies(
    spark: SparkSession, disque_server: NodeFactory, tmp_path: Path, format: str
) -> None:
    node = disque_server()
    table = tmp_path / "table"
    settings = TableSettings(format, "json:n INT, tags ARRAY<STRING>", drop_body=True)
    nodes = [f"127.0.0.1:{node.port}"]
    archive = Archive(nodes, ["a/b"], table, settings=settings, available_now=True)
    add(node, "a/b", ['{"n": 1, "tags": ["x"]}', '{"n": 2} and more', '{"n": 3}'])
    assert run(spark, archive) == 3
    assert archive.undecoded == 1
    table_of(location(table), settings).keep_up(Upkeep(days=2), lambda text: None)
    rows = read_archive(spark, table).orderBy("value.n").collect()
    assert [row["queue"] for row in rows] == ["a/b"] * 3
    assert [row["body"] for row in rows] == [b'{"n": 2} and more', None, None]
    assert [row["value"] and row["value"].asDict() for row in rows] == [
        None,
        {"n": 1, "tags": ["x"]},
        {"n": 3, "tags": None},
    ]
    assert all(row["archived_at"].date() == row["day"] for row in rows)
    assert left_at(node) == NOTHING


def test_texts_are_bodies_in_utf8(spark: SparkSession) -> None:
    bodies = ["\u00fc".encode(), b"\xff"]
    rows = spark.createDataFrame([(body,) for body in bodies], "body binary")
    found = {(row["body"], row["value"]) for row in decoded(rows, "text").collect()}
    assert found == {(bodies[0], "\u00fc"), (bodies[1], None)}


def test_bodies_that_are_not_just_one_json_object_have_no_value(spark: SparkSession) -> None:
    right = ['{"a": 1, "b": "x"}', "{}", ' {"a": 1}\n', '{"a": 1, "c": 2}', '{"b": 5}']
    right.append('{"a": null}')
    wrong = [
        "",
        "null",
        "3",
        "x",
        '{"a": 1',
        '{"a": 1}x',
        '{"a": 1} {"a": 2}',
        '{"a": 1},"c":2',
        '{"a": 1},{"a": 2}',
        '{"a": 1}],[{"b": 2}',
        '[{"a": 1}]',
        '{"a": 1}}',
    ]
    bodies = [(text.encode(),) for text in right + wrong] + [(b'{"b": "\xff"}',)]
    rows = spark.createDataFrame(bodies, "body binary")
    found = decoded(rows, "json:a INT, b STRING", drop=True).collect()
    assert [row["body"] is None for row in found] == [True] * len(right) + [False] * 13
    assert [row["value"] is None for row in found] == [False] * len(right) + [True] * 13
    assert found[0]["value"].asDict() == {"a": 1, "b": "x"}
    assert {row[BAD] for row in found} == {0}


def test_a_field_with_another_type_is_null_and_the_others_stay(spark: SparkSession) -> None:
    bodies = {
        '{"a": "x", "b": "y"}': ((None, "y", None, None), 1),
        '{"a": 3000000000, "b": 5}': ((None, "5", None, None), 1),
        '{"a": 1.5, "e.f": "x"}': ((None, None, None, None), 2),
        '{"c": {"x": "no", "y": "2026-01-02"}, "a": 3}': ((3, None, (None, SECOND), None), 1),
        '{"c": 5, "a": null}': ((None, None, None, None), 1),
        '{"a": 1, "e.f": 2.5}': ((1, None, None, 2.5), 0),
    }
    rows = spark.createDataFrame([(text.encode(),) for text in bodies], "body binary")
    columns = "a INT, b STRING, c STRUCT<x: INT, y: DATE>, `e.f` DOUBLE"
    found = {
        bytes(row["body"] or b"").decode(): (tuple(row["value"]), row[BAD])
        for row in decoded(rows, f"json:{columns}", drop=True).collect()
    }
    whole = list(bodies)[-1]  # only its body may be left out
    assert found == {text if text != whole else "": value for text, value in bodies.items()}


@pytest.mark.parametrize("format", ["parquet", "delta", "iceberg"])
def test_a_later_run_may_ask_for_more_columns(
    spark: SparkSession, disque_server: NodeFactory, tmp_path: Path, format: str
) -> None:
    """They are null in earlier rows; so are those that no run asks for any more."""
    node = disque_server()
    table = tmp_path / "table"
    nodes = [f"127.0.0.1:{node.port}"]
    for body, columns in (
        ('{"a": 1, "b": "x"}', None),
        ('{"a": 2, "b": "x"}', "a INT"),
        ('{"a": 3, "b": "y", "c": {"x": 1}}', "b STRING, c STRUCT<x: INT>"),
        ('{"a": "no", "c": {"y": 2}}', "c STRUCT<y: INT>"),
    ):
        add(node, "q", [body])
        settings = TableSettings(format, columns and f"json:{columns}")
        archive = Archive(nodes, ["q"], table, settings=settings, available_now=True)
        assert run(spark, archive) == 1
    assert archive.bad == 1
    rows = read_archive(spark, table).orderBy("archived_at").collect()
    assert [row["value"] and row["value"].asDict(True) for row in rows] == [
        None,
        {"a": 2, "b": None, "c": None},
        {"a": 3, "b": "y", "c": {"x": 1, "y": None}},
        {"a": None, "b": None, "c": {"x": None, "y": 2}},
    ]
    if format != "parquet":
        assert table_of(location(table), settings).keep_up(Upkeep(), lambda _: None).after == 1
        rows = read_archive(spark, table).orderBy("archived_at").collect()
        assert [bool(row["value"]) for row in rows] == [False, True, True, True]
    with pytest.raises(TableError, match=r"value\.c\.y has type int32, not string"):
        replace(archive, settings=TableSettings(format, "json:c STRUCT<y: STRING>")).start(spark)
