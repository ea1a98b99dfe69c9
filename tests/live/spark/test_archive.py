"""Archiving queues of real nodes into tables."""

import os
import signal
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from disque_trio.spark.archive import (
    CHECKPOINT,
    LEASES,
    STAGING,
    Archive,
    ArchiveError,
    check_written,
    make_directory,
    publish,
    read_archive,
)
from tests.support.harness import LiveNode, NodeFactory, wait_until

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

NOTHING = [b"0", []]


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


def left_at(node: LiveNode) -> object:
    return node.ask("JSCAN", 0, "BUSYLOOP", "STATE", "queued", "STATE", "active")


def test_all_that_is_queued_is_archived_once_and_acknowledged(
    spark: SparkSession, disque_server: NodeFactory, tmp_path: Path
) -> None:
    """In partitions by queue and day. Names of queues stay text, whatever they look like."""
    node = disque_server()
    archive = archive_of(node, tmp_path / "table", "007", "mail/in")
    add(node, "007", [f"order {n}" for n in range(120)])
    add(node, "mail/in", ["letter"])
    assert run(spark, archive) == 121
    add(node, "007", ["late"])
    # The run after it acknowledges what the last batch of the one before had, too.
    assert run(spark, archive) == 1
    assert run(spark, archive) == 0
    rows = read_archive(spark, tmp_path / "table").collect()
    bodies = sorted(bytes(row["body"]).decode() for row in rows)
    assert bodies == sorted([f"order {n}" for n in range(120)] + ["letter", "late"])
    assert {row["queue"] for row in rows} == {"007", "mail/in"}
    assert all(row["archived_at"].date() == row["day"] for row in rows)
    assert left_at(node) == NOTHING
    parts = {path.parent.name for path in (tmp_path / "table").glob("queue=*/day=*")}
    assert parts == {"queue=007", "queue=mail%2Fin"}
    # Another program sees the same.
    table = pyarrow.dataset.dataset(tmp_path / "table").to_table(["body"])
    assert sorted(body.decode() for body in table.column("body").to_pylist()) == bodies


def test_a_batch_that_is_repeated_replaces_its_own_files(
    spark: SparkSession, disque_server: NodeFactory, tmp_path: Path
) -> None:
    """As when the driver dies with the files in the table, and before Spark's commit."""
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


def adds_and_fails(archive: Archive, batch: DataFrame, number: int) -> None:
    _add(archive, batch, number)
    raise ArchiveError("it died here")


def test_a_second_checkpoint_replaces_nothing_of_the_first(
    spark: SparkSession, disque_server: NodeFactory, tmp_path: Path
) -> None:
    node = disque_server()
    table = tmp_path / "table"
    for body in ("1", "2"):
        add(node, "q", [body])
        assert run(spark, archive_of(node, table, "q")) == 1
        (table / CHECKPOINT).rename(tmp_path / f"checkpoint {body}")
    assert bodies_of(read_archive(spark, table)) == ["1", "2"]


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
    # Batches that have begun when it is told are not torn apart, the next ones do not begin.
    archive = Archive(
        [f"127.0.0.1:{node.port}"], ["q"], table, seconds=0, options={"maxJobsPerBatch": "10"}
    )
    add(node, "q", [f"{n}" for n in range(20, 50)])
    query = archive.start(spark)
    wait_until(lambda: len(list(table.glob("queue=q/*/*.parquet"))) > 1)
    total = archive.follow(query, lambda text: None, lambda: True)
    archive.acknowledge()
    assert query.isActive is False
    left = left_at(node)
    assert isinstance(left, list)
    assert total == 30 - len(left[1])
    assert read_archive(spark, table).count() == 20 + total
    assert run(spark, archive_of(node, table, "q")) == 30 - total
    assert left_at(node) == NOTHING


def holders_of(lock: Path) -> list[int]:
    """The processes that have locked a file."""
    inode = f":{lock.stat().st_ino} "
    lines = Path("/proc/locks").read_text().splitlines()
    return [int(line.split()[4]) for line in lines if inode in line and "->" not in line]


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
            for process in holders_of(table / LEASES / "lock"):
                os.kill(process, signal.SIGKILL)
            # What came earlier could be given to the dead, and would come again after minutes.
            wait_until(lambda: node.info("clients")["blocked_clients"] == "0")
            add(node, "q", ["2"])
        said.append(text)

    def stop() -> bool:
        return len(told) > 0 and left_at(node) == NOTHING

    assert archive.run(spark, progress, told.append, stop) == 2
    assert len(told) == 1
    archive.acknowledge()
    assert bodies_of(read_archive(spark, table)) == ["1", "2"]
    # What needs fixing by hand is not tried endlessly.
    archive = archive_of(node, table, "q")
    (table / "queue=q").rename(tmp_path / "away")
    (table / "queue=q").touch()
    add(node, "q", ["3"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("disque_trio.spark.restarts.FIRST_PAUSE", 0.0)
        told.clear()
        with pytest.raises(StreamingQueryException, match="queue=q"):
            archive.run(spark, lambda text: None, told.append)
    assert 1 <= len(told) < 5


def test_rows_are_counted_also_when_the_stream_was_idle_before(
    spark: SparkSession, disque_server: NodeFactory, tmp_path: Path
) -> None:
    """What Spark tells of an idle stream has the number of the batch that comes next."""
    node = disque_server()
    archive = Archive([f"127.0.0.1:{node.port}"], ["q"], tmp_path / "table", seconds=0)
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "10")
    try:
        query = archive.start(spark)
        wait_until(lambda: len(query.recentProgress) > 1)
        add(node, "q", ["1", "2"])
        wait_until(lambda: (tmp_path / "table" / "queue=q").exists())
        assert archive.follow(query, lambda text: None, lambda: True) == 2
    finally:
        spark.conf.unset("spark.sql.streaming.noDataProgressEventInterval")


def test_why_a_batch_cannot_be_written_is_told_in_short(
    spark: SparkSession, disque_server: NodeFactory, tmp_path: Path
) -> None:
    node = disque_server()
    add(node, "q", ["1"])
    table = tmp_path / "table"
    archive = archive_of(node, table, "q")
    table.mkdir()
    (table / "queue=q").touch()  # what cannot be a directory
    with pytest.raises(StreamingQueryException, match=r"ArchiveError: .*queue=q") as failed:
        run(spark, archive)
    assert len(str(failed.value)) < 5000
    (table / "queue=q").unlink()
    assert run(spark, archive) == 1
    assert left_at(node) == NOTHING


def test_a_format_that_spark_does_not_have_is_an_error(
    spark: SparkSession, disque_server: NodeFactory, tmp_path: Path
) -> None:
    node = disque_server()
    add(node, "q", ["1"])
    nodes = [f"127.0.0.1:{node.port}"]
    archive = Archive(nodes, ["q"], tmp_path / "table", format="delta", available_now=True)
    with pytest.raises(ArchiveError, match="delta"):
        archive.start(spark)
    assert node.ask("QLEN", "q") == 1
    assert not (tmp_path / "table" / LEASES).exists()


def test_files_come_into_the_table_whole_and_replace_only_those_of_their_batch(
    tmp_path: Path,
) -> None:
    staging, table = tmp_path / "table" / STAGING, tmp_path / "table"
    day = Path("queue=a") / "day=2026-11-21"
    for text, name in (("first", "000001-x"), ("second", "000002-x"), ("again", "000002-x")):
        (staging / day).mkdir(parents=True)
        (staging / day / f"part-00003-{text}.c000.snappy.parquet").write_text(text)
        (staging / "_SUCCESS").touch()
        publish(staging, table, name)
    files = {path.name: path.read_text() for path in (table / day).iterdir()}
    assert files == {
        "part-000001-x-00003.c000.snappy.parquet": "first",
        "part-000002-x-00003.c000.snappy.parquet": "again",
    }
    assert not staging.exists()


@pytest.mark.parametrize(
    ("files", "success", "rows"), [(2, True, 6), (1, True, 6), (0, True, 6), (2, False, 6)]
)
def test_a_batch_that_is_not_here_as_a_whole_is_not_brought_into_the_table(
    tmp_path: Path, files: int, success: bool, rows: int
) -> None:
    """As when executors on other machines have written to a directory of the same name there."""
    day = tmp_path / "queue=a" / "day=2026-11-21"
    day.mkdir(parents=True)
    for n in range(files):
        pyarrow.parquet.write_table(pa.table({"id": ["1", "2", "3"]}), day / f"part-{n}.parquet")
    if success:
        (tmp_path / "_SUCCESS").touch()
    if success and files * 3 == rows:
        check_written(tmp_path, rows)
        return
    with pytest.raises(ArchiveError, match="share"):
        check_written(tmp_path, rows)


def test_each_directory_that_is_made_is_brought_to_the_disk_by_the_one_above_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr("disque_trio.spark.archive.sync_directory", synced.append)
    leases = tmp_path / "new" / "table" / LEASES
    make_directory(leases)
    assert leases.is_dir()
    assert sorted(synced) == [tmp_path, tmp_path / "new", tmp_path / "new" / "table"]
    make_directory(leases)
    assert len(synced) == 3


def test_what_is_no_archive_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(ArchiveError):
            read_archive(spark, path)


def test_a_job_that_was_delivered_twice_is_read_once(spark: SparkSession, tmp_path: Path) -> None:
    rows = [("x", "q", b"1"), ("x", "q", b"1"), ("y", "q", b"2")]
    spark.createDataFrame(rows, "id string, queue string, body binary").write.parquet(
        str(tmp_path / "table")
    )
    assert bodies_of(read_archive(spark, tmp_path / "table")) == ["1", "2"]
