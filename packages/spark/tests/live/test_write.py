"""Rows that become jobs: frames and streams that Spark writes to real nodes."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from disque_spark.failures import one_line
from tests.support.harness import ClusterFactory, LiveNode, free_port, wait_until


def write(frame: DataFrame, *nodes: LiveNode, **options: object) -> None:
    addresses = ",".join(f"127.0.0.1:{node.port}" for node in nodes)
    writer = frame.write.format("disque").mode("append").option("nodes", addresses)
    for name, value in options.items():
        writer = writer.option(name, str(value))
    writer.save()


def jobs(node: LiveNode) -> list[dict[str, object]]:
    """Return all jobs of a node, as it shows them."""
    reply = node.ask("JSCAN", 0, "BUSYLOOP", "REPLY", "all")
    assert isinstance(reply, list)
    return [{job[at].decode(): job[at + 1] for at in range(0, len(job), 2)} for job in reply[1]]


def bodies(*nodes: LiveNode) -> list[str]:
    return sorted(str(job["body"], "utf-8") for node in nodes for job in jobs(node))  # type: ignore[call-overload]


def report(path: Path) -> Iterator[dict[str, object]]:
    for line in path.read_text().splitlines():
        yield json.loads(line)


def test_a_row_becomes_a_job_with_its_own_options(spark: SparkSession, node: LiveNode) -> None:
    rows = [
        (bytearray(b"\x00\xff"), "a", 600, 7, 3600, 1, 10, 1000, 3),
        (bytearray(b"plain"),) + (None,) * 8,
    ]
    schema = (
        "body binary, queue string, delay int, retry long, ttl int, replicate int, maxlen int,"
        " timeout int, priority int"
    )
    write(spark.createDataFrame(rows, schema), node, queue="b", retry=9, ttl=7200)
    first, second = sorted(jobs(node), key=lambda job: str(job["queue"]))
    assert (first["body"], first["queue"]) == (b"\x00\xff", b"a")
    assert (first["delay"], first["retry"], first["state"]) == (600, 7, b"active")
    assert (first["priority"], second.get("priority")) == (3, None)
    assert 3000 < int(str(first["ttl"])) <= 3600
    assert (second["body"], second["queue"], second["retry"]) == (b"plain", b"b", 9)
    assert 7000 < int(str(second["ttl"])) <= 7200


@pytest.mark.parametrize(
    ("rows", "schema", "options", "reason"),
    [
        ("1.5", "body decimal", {}, "body: expected a column of type binary or string"),
        ("'a', 1.5", "body string, delay double", {}, "delay: expected a column of integers"),
        ("'a', 1", "body string, extra int", {}, "unknown: extra"),
        ("'a'", "body string", {"retryy": 3}, "retryy: no such option of disque; did you mean"),
        ("'a'), ('b'), (null", "body string", {}, "1 rows were refused, the first with: NULL"),
    ],
)
def test_an_error_takes_one_line_and_nothing_is_written(
    spark: SparkSession,
    node: LiveNode,
    rows: str,
    schema: str,
    options: dict[str, object],
    reason: str,
) -> None:
    names = ", ".join(column.split()[0] for column in schema.split(", "))
    frame = spark.sql(f"select * from values ({rows}) as t({names})").coalesce(1)
    with pytest.raises(PySparkException) as raised:
        write(frame, node, queue="q", **options)
    text = str(raised.value)
    assert "Traceback" not in text
    assert len([line for line in text.splitlines() if reason in line]) == 1
    assert "Error: " in one_line(raised.value)
    assert reason in one_line(raised.value)
    assert node.ask("QLEN", "q") == 0


def test_all_rows_become_jobs(spark: SparkSession, node: LiveNode, tmp_path: Path) -> None:
    frame = spark.range(5000).selectExpr("concat('body ', id) as body").repartition(4)
    write(frame, node, queue="q", pipeline=300, reportPath=tmp_path / "report.jsonl")
    assert node.ask("QLEN", "q") == 5000
    assert len(set(bodies(node))) == 5000
    [line] = report(tmp_path / "report.jsonl")
    assert (line["batch"], line["added"], line["refused"]) == (None, 5000, {})


def test_a_refused_row_fails_the_write(spark: SparkSession, node: LiveNode) -> None:
    node.ask("PAUSE", "q", "in")
    frame = spark.createDataFrame([("x",)], "body string")
    with pytest.raises(PySparkException, match="PAUSED"):
        write(frame, node, queue="q")


def test_refused_rows_can_be_dropped_and_are_counted(
    spark: SparkSession, node: LiveNode, tmp_path: Path
) -> None:
    node.ask("PAUSE", "closed", "in")
    queues = [("open", 0), ("closed", 0), ("closed", 0), ("open", -1), (None, 0)]
    frame = spark.createDataFrame(
        [("x", *row) for row in queues], "body string, queue string, delay int"
    )
    path = tmp_path / "report.jsonl"
    write(frame.repartition(2), node, onRefused="drop", reportPath=path)
    assert node.ask("QLEN", "open") == 1
    [line] = report(path)
    assert line["added"] == 1
    assert line["refused"] == {"PAUSED": 2, "ERR": 1, "NULL": 1}


def test_refused_rows_become_dead_letters_that_can_be_written_again(
    spark: SparkSession, node: LiveNode, tmp_path: Path
) -> None:
    node.ask("PAUSE", "closed", "in")
    rows = [(f"body {n}", "closed" if n % 3 else "open", n, f"note {n}") for n in range(30)]
    frame = spark.createDataFrame(rows, "body string, queue string, retry int, note string")
    write(frame, node, onRefused="deadletter", deadLetterPath=tmp_path / "letters")
    letters = spark.read.parquet(str(tmp_path / "letters"))
    assert node.ask("QLEN", "open") == 10
    found = letters.collect()
    assert sorted(row.body.decode() for row in found) == sorted(
        r[0] for r in rows if r[1] == "closed"
    )
    assert all(row.error.startswith("PAUSED") and row.queue == "closed" for row in found)
    node.ask("PAUSE", "closed", "none")
    write(letters.drop("error", "time"), node)
    assert node.ask("QLEN", "closed") == 20
    again = [job for job in jobs(node) if job["queue"] == b"closed"]
    assert {(job["retry"], job["note"]) for job in again} == {
        (n, b"note %d" % n) for n in range(30) if n % 3
    }


def test_a_node_out_of_reach_is_passed_over(spark: SparkSession, node: LiveNode) -> None:
    frame = spark.range(100).selectExpr("string(id) as body").repartition(2)
    gone = f"127.0.0.1:{free_port()}"
    frame.write.format("disque").mode("append").options(
        nodes=f"{gone},127.0.0.1:{node.port}", queue="q"
    ).save()
    assert node.ask("QLEN", "q") == 100


def test_too_few_nodes_are_an_error_after_some_retries(spark: SparkSession, node: LiveNode) -> None:
    frame = spark.createDataFrame([("x",)], "body string")
    with pytest.raises(PySparkException, match="NOREPL"):
        write(frame, node, queue="q", replicate=3, retries=2, retryPause=10)


def test_a_stream_is_written_to_a_cluster_that_loses_a_node(
    spark: SparkSession, cluster: ClusterFactory, tmp_path: Path
) -> None:
    nodes = cluster(3)
    source = tmp_path / "in"
    source.mkdir()
    reader = spark.readStream.schema("body string").option("maxFilesPerTrigger", 1)
    query = (
        reader.json(str(source))
        .writeStream.format("disque")
        .option("nodes", ",".join(f"127.0.0.1:{node.port}" for node in nodes))
        .option("queue", "q")
        .option("replicate", 2)
        .option("reportPath", str(tmp_path / "report.jsonl"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )

    def put(name: str, first: int) -> None:
        lines = [json.dumps({"body": f"body {n}"}) for n in range(first, first + 50)]
        (tmp_path / name).write_text("\n".join(lines))
        (tmp_path / name).rename(source / name)

    def reported(batches: int) -> bool:
        path = tmp_path / "report.jsonl"
        return path.exists() and len(path.read_text().splitlines()) == batches

    try:
        put("one.json", 0)
        wait_until(lambda: reported(1))
        nodes[0].kill()  # the first that is tried
        put("two.json", 50)
        wait_until(lambda: reported(2))
        assert query.exception() is None
    finally:
        query.stop()
    assert set(bodies(nodes[1], nodes[2])) == {f"body {n}" for n in range(100)}
    assert [line["batch"] for line in report(tmp_path / "report.jsonl")] == [0, 1]


@pytest.mark.parametrize(
    ("columns", "options", "reason"),
    [
        ("body string, colour string", {"queue": "q"}, "colour"),
    ],
)
def test_columns_that_make_no_jobs_are_refused_before_anything_is_written(
    spark: SparkSession, node: LiveNode, columns: str, options: dict[str, str], reason: str
) -> None:
    with pytest.raises(PySparkException, match=reason):
        write(spark.createDataFrame([], columns), node, **options)


def test_jobs_are_not_overwritten(spark: SparkSession, node: LiveNode) -> None:
    writer = spark.createDataFrame([("x",)], "body string").write.format("disque")
    with pytest.raises(PySparkException, match="append"):
        writer.mode("overwrite").options(nodes=f"127.0.0.1:{node.port}", queue="q").save()
