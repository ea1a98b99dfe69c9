"""The sink with nodes that support UNIQUE: repeats add nothing twice."""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StringType, StructType

from disque_spark.options import OptionError
from disque_spark.sink.writer import ModeError, Sink, StreamWriter
from tests.support.harness import ClusterFactory, LiveNode, wait_until
from tests.support.scripted_node import ScriptedNode

BODY = StructType().add("body", StringType())


def sink(*nodes: LiveNode, **options: object) -> Sink:
    addresses = ",".join(f"127.0.0.1:{node.port}" for node in nodes)
    texts = {name: str(value) for name, value in options.items()}
    return Sink(BODY, {"nodes": addresses, "queue": "q", **texts}, False)


def rows(*bodies: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"body": list(bodies)})


def bodies(*nodes: LiveNode) -> Counter[str]:
    """Return all jobs, each counted once."""
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

    writer = sink(node)
    with pytest.raises(ZeroDivisionError):
        writer.write(fails())
    assert bodies(node).total() == 60
    writer.write(iter([rows(*reversed(list(wanted.elements())))]))
    assert bodies(node) == wanted


def test_what_consumers_have_acknowledged_is_not_added_again(node: LiveNode) -> None:
    writer = sink(node)
    writer.write(iter([rows("a", "b")]))
    taken = node.ask("GETJOB", "COUNT", 2, "FROM", "q")
    assert isinstance(taken, list)
    node.ask("ACKJOB", *[job[1] for job in taken])
    writer.write(iter([rows("a", "b", "c")]))
    assert bodies(node) == {"c": 1}


def test_each_write_is_one_of_its_own_unless_it_has_a_name(node: LiveNode) -> None:
    for options in {}, {}, {"writeId": "w"}, {"writeId": "w"}, {"writeId": "v"}:
        sink(node, **options).write(iter([rows("a", "a")]))
    assert bodies(node) == {"a": 8}


def test_at_least_once_adds_again_what_is_repeated(node: LiveNode) -> None:
    writer = sink(node, mode="at-least-once")
    for _ in range(2):
        writer.write(iter([rows("a")]))
    assert bodies(node) == {"a": 2}


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
            .options(nodes=f"127.0.0.1:{node.port}", queue="q")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run()
    assert bodies(node).total() == 50
    # As if the driver had died after the batch was added, before its commit.
    for name in "0", ".0.crc":
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    (source / "b.json").write_text(json.dumps({"body": "later"}))
    run()
    assert bodies(node) == Counter([*(f"body {n % 30}" for n in range(50)), "later"])


def test_a_node_that_dies_with_answers_owed_leaves_each_row_once(cluster: ClusterFactory) -> None:
    nodes = cluster(3)
    wait_until(lambda: "NOREPL" not in str(nodes[0].ask("ADDJOB", "warm", "x", 60_000, "ASYNC")))

    def dying() -> Iterator[pa.RecordBatch]:
        yield rows(*[f"body {n}" for n in range(300)])
        nodes[0].kill()
        yield rows(*[f"body {n}" for n in range(300, 600)])

    written = sink(*nodes, replicate=2, failover=20)
    assert written.write(dying()).added == 600
    # Everything again, as a repeated task does.
    assert written.write(iter([rows(*[f"body {n}" for n in range(600)])])).added == 600
    assert bodies(nodes[1], nodes[2]) - Counter(["x"]) == {f"body {n}": 1 for n in range(600)}


OLD = pytest.mark.parametrize("error", [b"-ERR syntax error\r\n", b"-NOEXT a node does not\r\n"])


def without_unique(error: bytes) -> ScriptedNode:
    return ScriptedNode(lambda request: error if b"UNIQUE" in request else b"+id\r\n")


@OLD
@pytest.mark.parametrize("strict", [{"mode": "exactly-once"}, {"writeId": "w"}])
def test_nodes_without_unique_are_refused_whatever_becomes_of_rows(
    error: bytes, strict: dict[str, str]
) -> None:
    with without_unique(error) as node:
        options = {"nodes": node.address, "queue": "q", "discover": "false", "onRefused": "drop"}
        with pytest.raises(ModeError, match="mode=at-least-once"):
            Sink(BODY, {**options, **strict}, False).write(iter([rows("a")]))
    assert len(node.requests) == 1


@OLD
def test_nodes_without_unique_get_rows_without_keys_but_for_those_of_rows(error: bytes) -> None:
    with without_unique(error) as node:
        options = {"nodes": node.address, "queue": "q", "discover": "false", "onRefused": "drop"}
        own = pa.RecordBatch.from_pydict({"body": ["a", "b"], "unique": [None, "own"]})
        schema = StructType().add("body", StringType()).add("unique", StringType())
        written = Sink(schema, options, False).write(iter([own, rows("c")]))
    assert (written.added, written.refused.total(), written.once) == (2, 1, False)
    assert [(job[2], b"UNIQUE" in job) for job in node.requests] == [
        *[(b"a", True), (b"b", True)],
        *[(b"a", False), (b"b", True)],
        (b"c", False),
    ]


def test_a_missing_majority_is_waited_for() -> None:
    answers = [b"-NOUNIQ no majority\r\n", b"+id\r\n"]
    with ScriptedNode(lambda request: answers.pop(0)) as node:
        options = {"nodes": node.address, "queue": "q", "discover": "false", "retryPause": "1"}
        written = Sink(BODY, options, False).write(iter([rows("a")]))
    assert written.added == 1
    assert node.requests[0] == node.requests[1]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"mode": "twice"}, "mode"),
        ({"mode": "at-least-once", "writeId": "w"}, "writeId"),
        ({"writeId": ""}, "writeId"),
        ({"uniqueFor": "-1"}, "uniqueFor"),
    ],
)
def test_meaningless_options_are_refused(options: dict[str, str], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        Sink(BODY, {"queue": "q", **options}, False)


def test_a_stream_names_its_writes_itself() -> None:
    with pytest.raises(OptionError, match="writeId"):
        StreamWriter(BODY, {"queue": "q", "writeId": "w"}, False)


def test_rows_bring_keys_groups_headers_and_times(node: LiveNode) -> None:
    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    headers = [{"key": "type", "value": b"\xff"}, {"key": "type", "value": b"b"}]
    later = datetime(2100, 1, 1, tzinfo=UTC)
    made = pa.RecordBatch.from_pydict(
        {
            "body": ["a", "again", "late"],
            "unique": ["k", "k", None],
            "group": ["g", None, None],
            "note": [None, None, "for Ann"],
            "at": pa.array([None, None, later], pa.timestamp("us", "UTC")),
            "headers": pa.array([headers, None, []], pa.list_(pair)),
        }
    )
    schema = from_arrow_schema(made.schema)
    options = {"nodes": f"127.0.0.1:{node.port}", "group": "all", "note": "for all"}
    options["ttl"] = "4000000000"
    Sink(schema, {"queue": "q", **options}, False).write(iter([made]))
    reply = node.ask("JSCAN", 0, "BUSYLOOP", "REPLY", "all")
    assert isinstance(reply, list)
    found = {job[at + 1]: job for job in reply[1] for at in [job.index(b"body")]}
    assert set(found) == {b"a", b"late"}
    first = dict(zip(found[b"a"][::2], found[b"a"][1::2], strict=True))
    last = dict(zip(found[b"late"][::2], found[b"late"][1::2], strict=True))
    assert (first[b"unique-key"], first[b"group"]) == (b"k", b"g")
    assert first[b"headers"] == [b"type", b"\xff", b"type", b"b"]
    assert (last[b"group"], last[b"state"]) == (b"all", b"active")
    assert (first[b"note"], last[b"note"]) == (b"for all", b"for Ann")
    assert b"headers" not in last


def test_one_task_writes_to_all_nodes_and_again_adds_nothing(cluster: ClusterFactory) -> None:
    nodes = cluster(3)
    written = sink(*nodes, replicate=1, pipeline=100)
    for _ in range(2):
        assert written.write(iter([rows(*[f"body {n}" for n in range(900)])])).added == 900
        assert [node.ask("QLEN", "q") for node in nodes] == [300] * 3
