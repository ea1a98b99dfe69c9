"""The tables of a live cluster, read by Spark from real nodes."""

import time
from collections.abc import Callable, Iterator, Sequence

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from disque_spark.client import WireError
from disque_spark.datasources.tables import JobsSource, QueuesSource
from disque_spark.options import OptionError
from tests.support.harness import ClusterFactory, LiveNode, NodeFactory, Wire, free_port, wait_until


@pytest.fixture
def pushdown(spark: SparkSession) -> Iterator[None]:
    """Let Spark pass filters to readers in Python."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    yield
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def table(spark: SparkSession, name: str, *nodes: LiveNode, **options: object) -> DataFrame:
    """Return the table as ``nodes`` return it."""
    addresses = ",".join(f"127.0.0.1:{node.port}" for node in nodes)
    reader = spark.read.format(name).option("nodes", addresses)
    for option, value in options.items():
        reader = reader.option(option, str(value))
    return reader.load()


Rows = Callable[..., list[dict[str, object]]]


@pytest.fixture
def rows(spark: SparkSession) -> Rows:
    """``rows(source, nodes, option=value)``: what Spark would get, without running a Spark job."""

    def read(source: type[DataSource], *nodes: LiveNode | str, **options: object) -> object:
        addresses = [n if isinstance(n, str) else f"127.0.0.1:{n.port}" for n in nodes]
        given = {name: str(value) for name, value in options.items()}
        made = source({"nodes": ",".join(addresses) or "127.0.0.1:7711", **given})
        schema = made.schema()
        reader = made.reader(
            schema if isinstance(schema, StructType) else StructType.fromDDL(schema)
        )
        batches = [batch for part in reader.partitions() for batch in reader.read(part)]
        return [row for batch in batches for row in batch.to_pylist()]

    return read  # type: ignore[return-value]


def add(node: LiveNode, queue: str | bytes, count: int, *options: str | int) -> list[str]:
    """Add jobs and return their ids."""
    wire = node.wire()
    for n in range(count):
        wire.send("ADDJOB", queue, f"body {n}", 60_000, *options)
    return [text(wire.read()) for _ in range(count)]


def text(reply: object) -> str:
    assert isinstance(reply, bytes), reply
    return reply.decode()


def ids(rows: Sequence[Row]) -> list[str]:
    return sorted(row.id for row in rows)


def test_a_job_has_all_its_fields(spark: SparkSession, node: LiveNode) -> None:
    before = time.time()
    id = text(node.ask("ADDJOB", "orders", b"\x00\xff", 0, "RETRY", 60, "TTL", 3600, "DELAY", 30))
    [row] = table(spark, "disque-jobs", node).collect()
    assert row.id == id
    assert (row.queue, row.state, row.repl, row.body) == ("orders", "active", 1, b"\x00\xff")
    assert (row.delay, row.retry, row.nacks, row.additional_deliveries) == (30, 60, 0, 0)
    assert 3000 < row.ttl <= 3600
    assert before - 1 < row.ctime.timestamp() < time.time() + 1
    assert (row.nodes_delivered, row.nodes_confirmed) == ([row.node], [])
    assert 20_000 < row.next_awake_within <= 30_000
    assert row.node == text(node.ask("CLUSTER", "MYID"))


def test_every_job_comes_once_however_small_the_steps(rows: Rows, node: LiveNode) -> None:
    added = add(node, "q", 137)
    found = rows(JobsSource, node, batchSize=10)
    assert sorted(str(row["id"]) for row in found) == sorted(added)


CONDITIONS: list[tuple[str, Callable[[Row], bool]]] = [
    ("queue in ('one', 'none')", lambda row: row.queue == "one"),
    ("state = 'active' and queue = 'two'", lambda row: row.state + row.queue == "activetwo"),
    ("state = 'no such state'", lambda row: False),
    ("queue = 'one' and queue = 'two'", lambda row: False),
    ("queue = 'two' and delay > 0", lambda row: row.delay > 0),
    ("queue <> 'one'", lambda row: row.queue != "one"),
]


def add_some_of_each(node: LiveNode) -> None:
    add(node, "one", 3)
    add(node, "two", 4)
    add(node, "two", 2, "DELAY", 100)
    node.ask("ACKJOB", *add(node, "two", 1))


def test_one_frame_serves_queries_with_different_filters(
    spark: SparkSession, node: LiveNode
) -> None:
    add_some_of_each(node)
    jobs = table(spark, "disque-jobs", node)
    everything = jobs.collect()
    for condition, holds in CONDITIONS:
        wanted = [row.id for row in everything if holds(row)]
        assert ids(jobs.where(condition).collect()) == sorted(wanted), condition
    both = jobs.where("queue = 'one'").union(jobs.where("state = 'active'"))
    assert sorted(row.queue for row in both.collect()) == ["one", "one", "one", "two", "two"]


def test_filters_that_are_pushed_down_give_the_same_rows(
    spark: SparkSession, node: LiveNode, pushdown: None
) -> None:
    add_some_of_each(node)
    everything = table(spark, "disque-jobs", node).collect()
    for condition, holds in CONDITIONS:
        wanted = [row.id for row in everything if holds(row)]
        jobs = table(spark, "disque-jobs", node, pushdown="true").where(condition)
        assert ids(jobs.collect()) == sorted(wanted), condition


def test_options_say_which_jobs_are_read(spark: SparkSession, rows: Rows, node: LiveNode) -> None:
    add_some_of_each(node)
    assert len(rows(JobsSource, node, queue="one")) == 3
    assert len(rows(JobsSource, node, state="queued,active")) == 9
    assert len(rows(JobsSource, node, queue="two", state="active")) == 2
    jobs = table(spark, "disque-jobs", node, queue="two")
    assert jobs.where("queue = 'one'").union(jobs.where("state = 'active'")).count() == 2


def requests(monitor: Wire, node: LiveNode) -> list[str]:
    """Return the requests that the node has received so far."""
    node.ask("ECHO", "the end")
    lines = [text(monitor.read())]
    while "the end" not in lines[-1]:
        lines.append(text(monitor.read()))
    return lines


def test_the_node_itself_filters_by_queue_and_state(
    spark: SparkSession, node: LiveNode, pushdown: None
) -> None:
    add(node, "one", 1)
    monitor = node.wire()
    assert monitor("MONITOR") == b"OK"
    jobs = table(spark, "disque-jobs", node, pushdown="true")
    assert jobs.where("queue = 'one' and state = 'queued'").count() == 1
    assert table(spark, "disque-jobs", node, queue="one", state="queued").count() == 1
    asked = [line for line in requests(monitor, node) if '"JSCAN"' in line]
    assert len(asked) == 2
    assert all('"STATE" "queued" "QUEUE" "one"' in line for line in asked)


def test_each_node_of_the_cluster_is_a_partition(
    spark: SparkSession, cluster: ClusterFactory
) -> None:
    nodes = cluster(3)
    added = add(nodes[0], "q", 20, "REPLICATE", 2)
    jobs = table(spark, "disque-jobs", nodes[1])
    assert jobs.rdd.getNumPartitions() == 3
    rows = jobs.collect()
    members = {text(node.ask("CLUSTER", "MYID")) for node in nodes}
    assert {row.node for row in rows} <= members
    assert set(ids(rows)) == set(added)
    assert len({(row.id, row.node) for row in rows}) == len(rows) >= 40
    assert all(set(row.nodes_delivered) <= members for row in rows)


def test_without_discovery_only_the_named_nodes_are_asked(
    rows: Rows, cluster: ClusterFactory
) -> None:
    nodes = cluster(2)
    add(nodes[0], "q", 5, "REPLICATE", 1)
    here = rows(JobsSource, nodes[0], discover="false")
    there = rows(JobsSource, nodes[1], discover="false")
    assert (len(here), len(there)) == (5, 0)
    assert len(rows(JobsSource, nodes[1])) == 5


def test_a_node_that_is_down_fails_the_query_unless_it_may_be_skipped(
    spark: SparkSession, rows: Rows, node: LiveNode
) -> None:
    add(node, "q", 3)
    nodes = (node, f"127.0.0.1:{free_port()}")
    with pytest.raises(WireError, match="no node can be reached"):
        rows(JobsSource, *nodes, discover="false")
    assert len(rows(JobsSource, *nodes, discover="false", unreachable="skip")) == 3
    lost = spark.read.format("disque-jobs").option("nodes", nodes[1])
    with pytest.raises(PySparkException, match="no node can be reached"):
        lost.load().collect()


def test_another_node_answers_who_is_in_the_cluster_when_the_first_is_down(
    rows: Rows, node: LiveNode
) -> None:
    add(node, "q", 3)
    assert len(rows(JobsSource, f"127.0.0.1:{free_port()}", node)) == 3


def test_nodes_that_are_not_a_cluster_are_all_read_once(
    rows: Rows, disque_server: NodeFactory
) -> None:
    one, other = disque_server(), disque_server()
    add(one, "q", 1)
    add(other, "q", 2)
    assert len(rows(JobsSource, one, other, f"localhost:{one.port}")) == 3


def test_a_password_is_given_to_every_node(spark: SparkSession, disque_server: NodeFactory) -> None:
    node = disque_server("--requirepass", "secret")
    wire = node.wire()
    assert wire("AUTH", "secret") == b"OK"
    wire("ADDJOB", "q", "body", 0)
    with pytest.raises(PySparkException, match="NOAUTH"):
        table(spark, "disque-jobs", node).collect()
    assert table(spark, "disque-jobs", node, password="secret").count() == 1


def test_a_queue_name_that_is_not_text_is_escaped_and_found(
    spark: SparkSession, node: LiveNode
) -> None:
    add(node, b"\xff-q", 2)
    add(node, "other", 1)
    jobs = table(spark, "disque-jobs", node)
    assert jobs.where(r"queue = '\\xff-q'").count() == 2


def test_a_node_without_jobs_has_no_rows(rows: Rows, node: LiveNode) -> None:
    assert rows(JobsSource, node) == []
    assert rows(QueuesSource, node) == []


def test_queues_show_what_went_through_them(spark: SparkSession, node: LiveNode) -> None:
    add(node, "orders", 5)
    node.ask("GETJOB", "COUNT", 2, "FROM", "orders")
    node.ask("PAUSE", "orders", "in")
    [row] = table(spark, "disque-queues", node).collect()
    assert (row.queue, row.len, row.jobs_in, row.jobs_out) == ("orders", 3, 5, 2)
    assert (row.pause, row.blocked, row.import_from, row.import_rate) == ("in", 0, [], 0)
    assert row.age >= row.idle >= 0
    assert row.node == text(node.ask("CLUSTER", "MYID"))


# test_pushdown has what becomes of each kind of filter.
LENGTHS: list[tuple[str, list[int]]] = [
    ("len > 4", [5]),
    ("len between 2 and 3", [2, 3]),
    ("len < 0", []),
    ("len >= 3 and queue = 'q5' and import_rate >= 0", [5]),
    ("len = 1 or len = 5", [1, 5]),
]


def test_queues_are_filtered_by_their_length(
    spark: SparkSession, node: LiveNode, pushdown: None
) -> None:
    for length in range(1, 6):
        add(node, f"q{length}", length)
    for condition, wanted in LENGTHS:
        queues = table(spark, "disque-queues", node, batchSize=2, pushdown="true")
        lengths = sorted(row.len for row in queues.where(condition).collect())
        assert lengths == wanted, condition


def test_options_say_which_queues_are_read(rows: Rows, node: LiveNode) -> None:
    for length in range(1, 6):
        add(node, f"q{length}", length)
    queues = rows(QueuesSource, node, minLen=2, maxLen=4, maxIdle=3600)
    assert sorted(str(row["len"]) for row in queues) == ["2", "3", "4"]
    assert rows(QueuesSource, node, importRate=1) == []


def test_the_node_itself_filters_queues_by_length(
    spark: SparkSession, node: LiveNode, pushdown: None
) -> None:
    add(node, "short", 1)
    add(node, "long", 9)
    monitor = node.wire()
    assert monitor("MONITOR") == b"OK"
    assert table(spark, "disque-queues", node, pushdown="true").where("len >= 5").count() == 1
    asked = requests(monitor, node)
    assert [line for line in asked if '"MINLEN" "5"' in line]
    assert not [line for line in asked if '"QSTAT" "short"' in line]


def test_a_federated_queue_shows_where_its_jobs_come_from(
    rows: Rows, cluster: ClusterFactory
) -> None:
    nodes = cluster(2)
    waiter = nodes[1].wire()
    waiter.send("GETJOB", "TIMEOUT", 20_000, "COUNT", 1, "FROM", "q")

    def federated() -> bool:
        add(nodes[0], "q", 1, "REPLICATE", 1)
        return any(row["import_from"] for row in rows(QueuesSource, nodes[1], discover="false"))

    wait_until(federated)
    assert waiter.read() is not None
    [row] = rows(QueuesSource, nodes[1], discover="false")
    assert row["import_from"] == [text(nodes[0].ask("CLUSTER", "MYID"))]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("discover", "perhaps"),
        ("unreachable", "ignore"),
        ("batchSize", "0"),
        ("timeout", "soon"),
        ("state", "queued,gone"),
        ("pushdown", "maybe"),
        ("nodes", "127.0.0.1:7711,,"),
    ],
)
def test_a_wrong_option_is_named(rows: Rows, option: str, value: str) -> None:
    with pytest.raises(OptionError, match=option):
        rows(JobsSource, **{option: value})


def test_a_wrong_option_is_an_error_of_the_query(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException, match="batchSize"):
        spark.read.format("disque-jobs").option("batchSize", "0").load().collect()
