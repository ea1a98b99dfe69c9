"""Event logs, read by Spark in both ways: with Spark's JSON reader and with the data source."""

import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from disque_spark.events import read_events
from disque_spark.files import location
from disque_spark.options import OptionError
from disque_spark.segments import Piece, blocks, find_segments, split
from tests.support.harness import NodeFactory, wait_until

NODE = "ab" * 20
START = 1_700_000_000_123

Way: TypeAlias = Callable[..., DataFrame]


def by_spark(spark: SparkSession, *paths: object, **options: str) -> DataFrame:
    return read_events(
        spark,
        *map(str, paths),
        include_open=options.get("includeOpen") == "true",
        malformed=options.get("malformed", "drop"),
    )


def by_source(spark: SparkSession, *paths: object, **options: str) -> DataFrame:
    return spark.read.format("disque-events").options(**options).load([str(p) for p in paths])


both_ways = pytest.mark.parametrize("events", [by_spark, by_source])


def line(number: int, event: str = "queued", /, **fields: str | int) -> str:
    """Return an event as a node writes it."""
    whole = {"time": START + number, "node": NODE, "event": event, "id": f"D-{number}", **fields}
    return json.dumps(whole, separators=(",", ":")) + "\n"


def segment(directory: Path, lines: str, number: int = 0, suffix: str = "") -> Path:
    """Write a segment."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"events-{NODE[:8]}-{START:013d}-{number}.jsonl{suffix}"
    data = lines.encode()
    path.write_bytes(gzip.compress(data) if suffix.startswith(".gz") else data)
    return path


def times(table: DataFrame) -> list[int]:
    """Return the times of the events, relative to START."""
    return sorted(row.time_ms - START for row in table.collect())


@both_ways
def test_a_line_is_a_row_with_typed_columns(
    spark: SparkSession, tmp_path: Path, events: Way
) -> None:
    fields: dict[str, str | int] = {
        "queue": "orders \u00e9 \\xff",
        "reason": "nack",
        "client": "worker-1",
        "peer": "cd" * 20,
        "nacks": 65535,
        "deliveries": 2,
        "size": 1 << 32,
        "repl": 3,
        "copies": 2,
        "retry": 60,
        "ttl": 4_000_000_000,
        "delay": 5,
        "ctime": START * 1_000_000 + 7,
        "count": 9,
        "priority": 7,
        "group": "blue",
    }
    segment(tmp_path, line(1, **fields) + line(2, "acked", later="a field of a later release"))
    first, second = events(spark, tmp_path).orderBy("time_ms").collect()
    assert {name: first[name] for name in fields} == fields
    assert (first.node, first.event, first.id, first.time_ms) == (NODE, "queued", "D-1", START + 1)
    assert first.time.astimezone(UTC) == datetime.fromtimestamp((START + 1) / 1000, UTC)
    assert (second.event, second.queue, second.nacks, second.ctime) == ("acked", None, None, None)
    assert (second.priority, second.group) == (None, None)


@both_ways
def test_only_closed_segments_are_read_unless_asked(
    spark: SparkSession, tmp_path: Path, events: Way
) -> None:
    segment(tmp_path / "a", line(1) + line(2))
    segment(tmp_path / "b" / "events", line(3), 1, ".gz")
    segment(tmp_path / "b" / "events", line(4) + line(5), 2, ".open")
    segment(tmp_path / "b" / "events", line(6), 3, ".gz.open")
    (tmp_path / "a" / "notes.jsonl").write_text(line(7))
    assert times(events(spark, tmp_path)) == [1, 2, 3]
    assert times(events(spark, tmp_path, includeOpen="true")) == [1, 2, 3, 4, 5]
    assert times(events(spark, tmp_path / "*" / "events")) == [3]
    assert times(events(spark, tmp_path / "a", tmp_path / "b" / "events")) == [1, 2, 3]


@both_ways
def test_a_segment_that_is_there_open_and_closed_is_read_once(
    spark: SparkSession, tmp_path: Path, events: Way
) -> None:
    segment(tmp_path, line(1) + line(2), 1, ".gz")
    segment(tmp_path, line(1) + line(2), 1, ".open")
    assert times(events(spark, tmp_path, includeOpen="true")) == [1, 2]


@both_ways
def test_lines_that_are_not_events_are_dropped_kept_or_fail(
    spark: SparkSession, tmp_path: Path, events: Way
) -> None:
    bad = ['{"time":17,"no', "[1,2]", '{"time":"soon","event":"acked"}', "not json at all", "7"]
    lines = [line(number) for number in range(20)]
    for at, text in enumerate(bad):
        lines.insert(3 * at + 2, text + "\n")
    segment(tmp_path, "".join(lines) + "\n")
    table = events(spark, tmp_path)
    assert times(table) == list(range(20))
    assert "malformed" not in table.columns
    kept = events(spark, tmp_path, malformed="keep").collect()
    assert sorted(row.malformed for row in kept if row.malformed is not None) == sorted(bad)
    assert sorted(row.time_ms - START for row in kept if row.malformed is None) == list(range(20))
    with pytest.raises((PySparkException, Py4JJavaError)):
        events(spark, tmp_path, malformed="fail").collect()


@both_ways
def test_counting_skips_lines_that_are_not_events(
    spark: SparkSession, tmp_path: Path, events: Way
) -> None:
    segment(tmp_path, line(1) + "half a li\n" + line(2, "acked") + "{}\n\n")
    assert events(spark, tmp_path).count() == 2
    assert events(spark, tmp_path).where("event = 'acked'").count() == 1
    kept = events(spark, tmp_path, malformed="keep")
    assert kept.where("malformed IS NOT NULL").count() == 2
    assert kept.where("malformed IS NULL").count() == 2


@both_ways
def test_one_frame_serves_several_queries(spark: SparkSession, tmp_path: Path, events: Way) -> None:
    segment(tmp_path, "".join(line(n, "acked" if n % 3 else "added") for n in range(30)))
    table = events(spark, tmp_path)
    assert table.where("event = 'acked'").count() == 20
    assert table.where("event = 'added'").union(table.where("time_ms % 2 = 0")).count() == 25
    first = datetime.fromtimestamp((START + 4) / 1000, UTC)
    assert table.where(table.time <= first).count() == 5
    assert table.count() == 30


@both_ways
def test_every_line_is_read_once_wherever_the_pieces_end(
    spark: SparkSession, tmp_path: Path, events: Way
) -> None:
    for number in range(3):
        lines = [line(n, client="c" * (n % 70)) for n in range(number * 500, number * 500 + 500)]
        segment(tmp_path, "".join(lines), number, ".gz" if number == 1 else "")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "7000")
    try:
        table = events(spark, tmp_path, partitionBytes="7000")
        assert table.rdd.getNumPartitions() > 10
        assert times(table) == list(range(1500))
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")


def test_the_data_source_works_in_sql(spark: SparkSession, tmp_path: Path) -> None:
    segment(tmp_path, line(1) + line(2, "acked"))
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW log USING `disque-events` OPTIONS (path '{tmp_path}')"
    )
    rows = spark.sql("SELECT event, count(*) AS n FROM log GROUP BY event").collect()
    assert {(row.event, row.n) for row in rows} == {("queued", 1), ("acked", 1)}
    spark.catalog.dropTempView("log")


@both_ways
def test_an_empty_segment_has_no_events(spark: SparkSession, tmp_path: Path, events: Way) -> None:
    segment(tmp_path, "", 0, ".open")
    segment(tmp_path, "", 1)
    segment(tmp_path, "", 2, ".gz").write_bytes(b"")
    segment(tmp_path, line(5), 3)
    assert times(events(spark, tmp_path, includeOpen="true")) == [5]


def test_an_empty_directory_has_no_events(spark: SparkSession, tmp_path: Path) -> None:
    assert by_source(spark, tmp_path).collect() == []
    assert by_spark(spark, tmp_path).collect() == []


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("malformed", "ignore", "malformed"),
        ("includeOpen", "yes", "includeOpen"),
        ("partitionBytes", "0", "partitionBytes"),
        ("path", "/no/such/directory", "no event log"),
        ("path", "strange://there/events", "Protocol not known: strange"),
    ],
)
def test_a_wrong_option_of_the_event_source_is_named(
    spark: SparkSession, tmp_path: Path, option: str, value: str, problem: str
) -> None:
    reader = spark.read.format("disque-events").option("path", str(tmp_path)).option(option, value)
    with pytest.raises(AnalysisException, match=problem):
        reader.load().collect()


def test_a_wrong_argument_is_named(spark: SparkSession) -> None:
    with pytest.raises(OSError, match=r"^strange://there: Protocol not known"):
        read_events(spark, "strange://there/events", include_open=True)
    with pytest.raises(OptionError, match="malformed"):
        read_events(spark, "/somewhere", malformed="ignore")


def test_half_a_line_at_the_end_of_an_open_segment_is_not_read_yet(tmp_path: Path) -> None:
    path = segment(tmp_path, line(1) + line(2)[:20], 0, ".open")
    piece = Piece(location(path), 0, path.stat().st_size)
    assert b"".join(blocks(piece)) == line(1).encode()


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_segment_that_was_closed_since_it_was_found_is_read(tmp_path: Path, suffix: str) -> None:
    lines = "".join(line(n) for n in range(100))
    path = segment(tmp_path, lines, 0, ".open")
    pieces = split(find_segments([str(tmp_path)], True), 1000)
    segment(tmp_path, lines + line(100), 0, suffix)
    path.unlink()
    data = b"".join(block for part in pieces for piece in part for block in blocks(piece, 300))
    assert data == lines.encode()


def test_small_segments_share_a_partition_and_big_ones_are_cut(tmp_path: Path) -> None:
    small = [segment(tmp_path, line(n), n) for n in range(5)]
    big = segment(tmp_path, "x" * 2500 + "\n", 9)
    parts = split([location(path) for path in (*small, big)], 1000)
    assert [Path(piece.path) for piece in parts[0]] == small
    assert [(piece.start, piece.end) for part in parts[1:] for piece in part] == [
        (0, 1000),
        (1000, 2000),
        (2000, 2501),
    ]


def added(rows: list[Row]) -> set[str]:
    """Return the ids of the jobs that were added."""
    return {row.id for row in rows if row.event == "added"}


@both_ways
def test_the_log_of_a_node_is_read_while_it_runs_and_when_it_has_ended(
    spark: SparkSession, disque_server: NodeFactory, events: Way
) -> None:
    node = disque_server("--event-log", "yes")
    myself = node.ask("CLUSTER", "MYID")
    ids = {text(node.ask("ADDJOB", "orders", f"body {n}", 0)) for n in range(20)}
    log = node.directory / "events"
    wait_until(lambda: len(list(log.glob("*.open"))) == 1)
    wait_until(lambda: added(events(spark, log, includeOpen="true").collect()) == ids)
    assert events(spark, log).collect() == []
    assert node.stop() == 0
    rows = events(spark, log).where("event = 'added'").collect()
    assert added(rows) == ids
    assert {(row.queue, row.node.encode(), row.repl) for row in rows} == {("orders", myself, 1)}


def text(reply: object) -> str:
    assert isinstance(reply, bytes), reply
    return reply.decode()


@pytest.fixture
def half_days(tmp_path: Path) -> Path:
    """A log of three half days; opening a segment of the first or last one fails."""
    for hour in range(0, 36, 12):
        at = START + hour * 3_600_000
        path = tmp_path / f"events-{NODE[:8]}-{at:013d}-0.jsonl"
        lines = line(at - START) + line(at - START + 1)
        path.write_text(lines if hour == 12 else "damaged\n")
    return tmp_path


def test_only_segments_of_the_time_are_opened(spark: SparkSession, half_days: Path) -> None:
    day = 12 * 3_600_000
    options = {"since": str(START + day + 1), "until": str(START + day + 3_600_000)}
    # The first segment may have events up to the beginning of the second one.
    assert times(by_source(spark, half_days, **options)) == [day + 1]
    options["since"] = str(START + day + 1_200_001)
    assert times(by_source(spark, half_days, malformed="fail", **options)) == []


def test_filters_on_the_time_do_that_as_well(spark: SparkSession, half_days: Path) -> None:
    day = 12 * 3_600_000
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        events = by_source(spark, half_days, malformed="fail", pushdown="true")
        later = f.col("time_ms") > START + day + 1_200_001
        assert events.where(later & (f.col("time_ms") < START + day + 3_600_000)).count() == 0
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
