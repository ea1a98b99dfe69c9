"""Append-only files of real nodes, read by Spark."""

import time
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from disque_trio.protocol.serialjob import JobWriter, deljob, loadjob, paused_queue
from tests.support.harness import ClusterFactory, LiveNode, NodeFactory

NODE = b"c" * 40


def job_id(number: int) -> bytes:
    return b"D-cccccccc-%024d-05a1" % number


def job(number: int, body: bytes = b"body", queue: bytes = b"q") -> bytes:
    """Return the record of a job."""
    nodes = NODE
    ctime = 1_700_000_000_000_000_007
    return loadjob(
        JobWriter().encode(
            job_id(number), 2, 0, 1, 2_000_000_000, ctime, 0, 60, 1, 2, queue, body, nodes
        )
    )


def load(spark: SparkSession, path: object, **options: str) -> DataFrame:
    return spark.read.format("disque-aof").options(**options).load(str(path))


def numbers(table: DataFrame) -> list[int | None]:
    """Return the numbers from which ``job_id`` made the ids, in the order of the file."""
    rows = table.orderBy("offset").collect()
    return [None if row.id is None else int(row.id[11:35]) for row in rows]


def ask(node: LiveNode, *args: str | int) -> str:
    reply = node.ask(*args)
    assert isinstance(reply, bytes), reply
    return reply.decode()


def test_the_file_of_a_node_has_its_jobs(spark: SparkSession, disque_server: NodeFactory) -> None:
    node = disque_server("--appendonly", "yes", "--appendfsync", "always")
    before = time.time()
    kept = ask(node, "ADDJOB", "orders", "kept", 0, "RETRY", 60, "TTL", 3600)
    acked = ask(node, "ADDJOB", "orders", "acked", 0)
    assert node.ask("ACKJOB", acked) == 1
    node.kill()
    [row] = load(spark, node.directory).collect()
    assert (row.id, row.queue, row.body) == (kept, "orders", b"kept")
    assert (row.retry, row.delay, row.repl, row.nacks, row.additional_deliveries) == (
        60,
        0,
        1,
        0,
        0,
    )
    assert len(row.nodes) == 1
    assert before - 1 < row.ctime.timestamp() < time.time() + 1
    assert before + 3598 < row.expires.timestamp() < time.time() + 3601
    assert Path(row.file) == node.directory / "disque.aof"
    everything = load(spark, node.directory, records="all").orderBy("offset").collect()
    assert [(row.record, row.id) for row in everything] == [
        ("LOADJOB", kept),
        ("LOADJOB", acked),
        ("DELJOB", acked),
    ]


def test_each_file_of_a_cluster_is_a_partition(
    spark: SparkSession, cluster: ClusterFactory, tmp_path: Path
) -> None:
    nodes = cluster(2, "--appendonly", "yes", "--appendfsync", "always")
    ids = {ask(nodes[0], "ADDJOB", "q", n, 60_000, "REPLICATE", 2) for n in range(10)}
    for node in nodes:
        node.kill()
    table = load(spark, tmp_path / "member-*")
    assert table.rdd.getNumPartitions() == 2
    rows = table.collect()
    assert sorted(row.id for row in rows) == sorted([*ids, *ids])
    assert all(len(row.nodes) == 2 for row in rows)


def test_a_job_that_came_back_after_its_deletion_is_live(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "disque.aof"
    file.write_bytes(
        job(1) + job(2) + deljob(job_id(1)) + job(3) + job(3) + job(1) + deljob(job_id(9))
    )
    assert numbers(load(spark, file)) == [2, 3, 1]
    assert numbers(load(spark, file, records="all")) == [1, 2, 1, 3, 3, 1, 9]


def test_fields_are_those_of_the_record(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "disque.aof"
    paused = paused_queue(b"q", 3)  # says nothing about jobs
    file.write_bytes(job(1) + paused + job(2, b"\x00\r\n*2\r\n", b"\xff"))
    row = load(spark, file).orderBy("offset").collect()[1]
    assert (row.offset, row.record, row.state) == (len(job(1) + paused), "LOADJOB", "queued")
    assert (row.queue, row.body) == ("\\xff", b"\x00\r\n*2\r\n")
    assert (row.nacks, row.additional_deliveries, row.repl) == (1, 2, 1)
    assert (row.ctime.timestamp(), row.expires.timestamp()) == (1_700_000_000, 2_000_000_000)
    assert (row.nodes, row.error) == ([NODE.decode()], None)


@pytest.mark.parametrize("records", ["live", "all"])
@pytest.mark.parametrize("rest", [job(3)[:-9], b"*2\r\n$7\r\nLOADJOB\r\n$5\r\nhello\r\n" + job(3)])
def test_an_option_decides_what_happens_to_damage(
    spark: SparkSession, tmp_path: Path, rest: bytes, records: str
) -> None:
    file = tmp_path / "disque.aof"
    file.write_bytes(job(1) + job(2) + rest)
    with pytest.raises(PySparkException, match=f"offset {len(job(1) + job(2))}"):
        load(spark, file, records=records).collect()
    assert numbers(load(spark, file, records=records, damaged="stop")) == [1, 2]
    reported = load(spark, file, records=records, damaged="report")
    assert numbers(reported) == [1, 2, None]
    [row] = reported.where("error IS NOT NULL").collect()
    assert row.offset == len(job(1) + job(2))


def test_a_job_that_cannot_be_read_is_damage_as_well(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "disque.aof"
    bad = job(2).replace(b"\x02\x00\x01", b"\x0f\x00\x01", 1)  # a state that does not exist
    assert bad != job(2)
    file.write_bytes(job(1) + bad + job(3))
    with pytest.raises(PySparkException, match="unknown job state"):
        load(spark, file).collect()
    assert numbers(load(spark, file, damaged="report")) == [1, None]


def test_many_jobs_come_in_batches(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "disque.aof"
    with file.open("wb") as out:
        for number in range(1000):
            out.write(job(number, b"x" * (number % 50)))
            if number % 2:
                out.write(deljob(job_id(number)))
    live = load(spark, file, batchSize="64")
    assert numbers(live) == list(range(0, 1000, 2))
    assert all(row.body == b"x" * (int(row.id[11:35]) % 50) for row in live.collect())


def test_an_empty_file_has_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "disque.aof").touch()
    assert load(spark, tmp_path).collect() == []


def test_several_paths_are_read_at_once(spark: SparkSession, tmp_path: Path) -> None:
    paths = []
    for number in range(3):
        path = tmp_path / f"{number}.saved"
        path.write_bytes(job(number))
        paths.append(str(path))
    table = spark.read.format("disque-aof").load(paths[:2])
    assert sorted(numbers(table), key=str) == [0, 1]
    assert load(spark, paths[2]).count() == 1
    assert load(spark, (tmp_path / "2.saved").as_uri()).count() == 1


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("records", "dead", "records"),
        ("damaged", "skip", "damaged"),
        ("path", "/no/such/file", "no append-only file"),
        ("path", "strange://there/disque.aof", "Protocol not known: strange"),
    ],
)
def test_a_wrong_option_of_the_file_source_is_named(
    spark: SparkSession, tmp_path: Path, option: str, value: str, problem: str
) -> None:
    reader = spark.read.format("disque-aof").option("path", str(tmp_path)).option(option, value)
    with pytest.raises(AnalysisException, match=problem):
        reader.load().collect()
