"""The sink with ``mode=exactly-once``: what is repeated adds nothing twice."""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructType

from disque_trio.spark.options import OptionError
from disque_trio.spark.sink.writer import ModeError, Sink, StreamWriter
from tests.support.harness import ClusterFactory, LiveNode, wait_until
from tests.support.scripted_node import ScriptedNode

BODY = StructType().add("body", StringType())


def sink(*nodes: LiveNode, **options: object) -> Sink:
    addresses = ",".join(f"127.0.0.1:{node.port}" for node in nodes)
    texts = {name: str(value) for name, value in options.items()}
    base = {"nodes": addresses, "queue": "q", "mode": "exactly-once", "writeId": "w"}
    return Sink(BODY, base | texts, False)


def rows(*bodies: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"body": list(bodies)})


def bodies(*nodes: LiveNode) -> Counter[str]:
    """Of all jobs, each counted once."""
    found: dict[bytes, str] = {}
    for node in nodes:
        reply = node.ask("JSCAN", 0, "BUSYLOOP", "REPLY", "all")
        assert isinstance(reply, list)
        found.update((job[1], job[job.index(b"body") + 1].decode()) for job in reply[1])
    return Counter(found.values())


def test_a_repeated_task_adds_what_is_missing_in_whatever_order_its_rows_come(
    node: LiveNode,
) -> None:
    wanted = Counter(f"body {n % 80}" for n in range(100))

    def fails() -> Iterator[pa.RecordBatch]:
        yield rows(*list(wanted.elements())[:60])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        sink(node).write(fails())
    assert bodies(node).total() == 60
    sink(node).write(iter([rows(*reversed(list(wanted.elements())))]))
    assert bodies(node) == wanted


def test_what_consumers_have_acknowledged_is_not_added_again(node: LiveNode) -> None:
    sink(node).write(iter([rows("a", "b")]))
    taken = node.ask("GETJOB", "COUNT", 2, "FROM", "q")
    assert isinstance(taken, list)
    node.ask("ACKJOB", *[job[1] for job in taken])
    sink(node).write(iter([rows("a", "b", "c")]))
    assert bodies(node) == {"c": 1}


def test_writes_are_told_apart(node: LiveNode) -> None:
    for name in "one", "other":
        sink(node, writeId=name).write(iter([rows("a")]))
    assert bodies(node) == {"a": 2}


def test_each_write_without_a_name_is_one_of_its_own(spark: SparkSession, node: LiveNode) -> None:
    frame = spark.range(50).selectExpr("concat('body ', id % 40) as body").repartition(3)
    options = {"nodes": f"127.0.0.1:{node.port}", "queue": "q", "mode": "exactly-once"}
    for _ in range(2):
        frame.write.format("disque").mode("append").options(**options).save()
    assert bodies(node).total() == 100
    for _ in range(2):
        frame.write.format("disque").mode("append").options(**options, writeId="w").save()
    assert bodies(node).total() == 150


def test_a_repeated_batch_of_a_stream_adds_nothing_twice(
    spark: SparkSession, node: LiveNode, tmp_path: Path
) -> None:
    source = tmp_path / "in"
    source.mkdir()
    lines = [json.dumps({"body": f"body {n % 30}"}) for n in range(50)]
    (source / "a.json").write_text("\n".join(lines))

    def run() -> None:
        stream = spark.readStream.schema("body string").json(str(source))
        query = (
            stream.writeStream.format("disque")
            .options(nodes=f"127.0.0.1:{node.port}", queue="q", mode="exactly-once")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run()
    assert bodies(node).total() == 50
    # As if the driver had died after the batch was added, and before its commit.
    for name in "0", ".0.crc":
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    (source / "b.json").write_text(json.dumps({"body": "later"}))
    run()
    assert bodies(node) == Counter([*(f"body {n % 30}" for n in range(50)), "later"])


def test_a_node_that_dies_with_answers_owed_leaves_each_row_once(cluster: ClusterFactory) -> None:
    nodes = cluster(3)
    wait_until(lambda: "NOREPL" not in str(nodes[0].ask("ADDJOB", "warm", "x", 5000, "ASYNC")))

    def dying() -> Iterator[pa.RecordBatch]:
        yield rows(*[f"body {n}" for n in range(300)])
        nodes[0].kill()
        yield rows(*[f"body {n}" for n in range(300, 600)])

    written = sink(*nodes, replicate=2, failover=20)
    assert written.write(dying()).added == 600
    # All of it again, as a repeated task does.
    assert written.write(iter([rows(*[f"body {n}" for n in range(600)])])).added == 600
    assert bodies(nodes[1], nodes[2]) - Counter(["x"]) == {f"body {n}": 1 for n in range(600)}


@pytest.mark.parametrize("error", [b"-ERR syntax error\r\n", b"-NOEXT a node does not\r\n"])
def test_nodes_without_unique_are_refused_whatever_becomes_of_rows(error: bytes) -> None:
    with ScriptedNode(lambda request: error) as node:
        options = {"nodes": node.address, "queue": "q", "discover": "false", "onRefused": "drop"}
        with pytest.raises(ModeError, match="mode=at-least-once"):
            Sink(BODY, {**options, "mode": "exactly-once"}, False).write(iter([rows("a")]))


def test_a_missing_majority_is_waited_for() -> None:
    answers = [b"-NOUNIQ no majority\r\n", b"+id\r\n"]
    with ScriptedNode(lambda request: answers.pop(0)) as node:
        options = {"nodes": node.address, "queue": "q", "discover": "false", "retryPause": "1"}
        written = Sink(BODY, {**options, "mode": "exactly-once"}, False).write(iter([rows("a")]))
    assert written.added == 1
    assert node.requests[0] == node.requests[1]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"mode": "twice"}, "mode"),
        ({"writeId": "w"}, "writeId"),
        ({"mode": "exactly-once", "writeId": ""}, "writeId"),
        ({"uniqueFor": "-1"}, "uniqueFor"),
    ],
)
def test_options_without_meaning_are_refused(options: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        Sink(BODY, {"queue": "q", **options}, False)


def test_a_stream_names_its_writes_itself() -> None:
    with pytest.raises(OptionError, match="writeId"):
        StreamWriter(BODY, {"queue": "q", "mode": "exactly-once", "writeId": "w"}, False)


def test_rows_bring_keys_groups_headers_and_times(spark: SparkSession, node: LiveNode) -> None:
    later = datetime(2100, 1, 1, tzinfo=UTC)
    schema = (
        "body string, unique string, group string, at timestamp,"
        " headers array<struct<key string, value binary>>"
    )
    headers = [("type", bytearray(b"\xff")), ("type", bytearray(b"b"))]
    made = [("a", "k", "g", None, headers), ("again", "k", None, None, None)]
    frame = spark.createDataFrame([*made, ("late", None, None, later, [])], schema)
    frame.coalesce(1).write.format("disque").mode("append").options(
        nodes=f"127.0.0.1:{node.port}", queue="q", group="all", ttl=4_000_000_000
    ).save()
    reply = node.ask("JSCAN", 0, "BUSYLOOP", "REPLY", "all")
    assert isinstance(reply, list)
    found = {job[at + 1]: job for job in reply[1] for at in [job.index(b"body")]}
    assert set(found) == {b"a", b"late"}
    first = dict(zip(found[b"a"][::2], found[b"a"][1::2], strict=True))
    last = dict(zip(found[b"late"][::2], found[b"late"][1::2], strict=True))
    assert (first[b"unique-key"], first[b"group"]) == (b"k", b"g")
    assert first[b"headers"] == [b"type", b"\xff", b"type", b"b"]
    assert (last[b"group"], last[b"state"]) == (b"all", b"active")
    assert b"headers" not in last
