"""Adding jobs that a filter selects to real nodes again."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession

from disque_spark.audit.run import audit
from disque_spark.replay import NO_QUEUE, Choice, ReplayError, Target, paced, replay
from packages.spark.tests.support.planted_log import generate
from tests.support.harness import LiveNode, NodeFactory

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

JOB = "id string, queue string, body binary"


def table(spark: SparkSession, path: Path, count: int) -> Path:
    """An archive."""
    rows = [(f"id-{n}", "ab"[n % 2], b"body %d" % n) for n in range(count)]
    spark.createDataFrame(rows, JOB).write.parquet(str(path))
    return path


def target(node: LiveNode, **more: object) -> Target:
    return Target([f"127.0.0.1:{node.port}"], **more)  # type: ignore[arg-type]


def bodies(node: LiveNode, queue: str) -> list[bytes]:
    reply = node.ask("QPEEK", queue, 10_000)
    assert isinstance(reply, list)
    return sorted(job[2] for job in reply)


def frame(spark: SparkSession, *rows: tuple[str, str, bytes | None]) -> DataFrame:
    return spark.createDataFrame(list(rows), JOB)


def test_what_a_filter_chooses_of_an_archive_is_added_again(
    spark: SparkSession, disque_server: NodeFactory, tmp_path: Path
) -> None:
    node = disque_server()
    archive = table(spark, tmp_path / "table", 500)
    jobs = Choice(archive, where="queue = 'a' and cast(body as string) like 'body 1%'").jobs(spark)
    expected = sorted(b"body %d" % n for n in range(0, 500, 2) if str(n).startswith("1"))
    outcome = replay(jobs, target(node), dry_run=True)
    assert (outcome.added, outcome.queues) == (len(expected), {"a": len(expected)})
    assert node.ask("QLEN", "a") == 0
    outcome = replay(jobs, target(node, options={"retry": 7}))
    assert outcome.added == len(expected)
    assert bodies(node, "a") == expected
    assert node.ask("QLEN", "b") == 0


def test_lost_jobs_that_an_audit_found_are_added_from_the_archive(
    spark: SparkSession, disque_server: NodeFactory, tmp_path: Path
) -> None:
    node = disque_server()
    planted = generate(tmp_path / "log", 2_000, anomalies=3, skew=0)
    audit(spark, [str(tmp_path / "log")], tmp_path / "audit")
    lost = sorted(planted["never-delivered", ""])
    rows = [(id, "other", id.encode()) for id in (*lost[:2], *planted["poison", ""])]
    spark.createDataFrame(rows, JOB).write.parquet(str(tmp_path / "table"))
    jobs = Choice(
        tmp_path / "table",
        audit=tmp_path / "audit",
        where="array_contains(findings, 'never-delivered') and deliveries = 0",
    ).jobs(spark)
    outcome = replay(jobs, target(node, queue="again"))
    assert (outcome.added, outcome.without_body) == (2, len(lost) - 2)
    assert bodies(node, "again") == [id.encode() for id in lost[:2]]


def test_bodies_come_from_append_only_files_too(
    spark: SparkSession, disque_server: NodeFactory, tmp_path: Path
) -> None:
    old = disque_server("--appendonly", "yes")
    for n in range(3):
        old.ask("ADDJOB", "q", f"body {n}", 0)
    (file,) = tmp_path.rglob("*.aof")
    node = disque_server()
    outcome = replay(Choice(aof=[str(file)]).jobs(spark), target(node))
    assert outcome.added == 3
    assert bodies(node, "q") == [b"body 0", b"body 1", b"body 2"]


def of_both(node: LiveNode) -> list[bytes]:
    return sorted([*bodies(node, "a"), *bodies(node, "b")])


def test_a_repeat_adds_only_what_is_missing(
    spark: SparkSession, disque_server: NodeFactory, tmp_path: Path
) -> None:
    node = disque_server()
    jobs = Choice(table(spark, tmp_path / "table", 30)).jobs(spark)
    first = replay(jobs, target(node), limit=10)
    assert first.added == len(of_both(node)) == 10
    # Not the next ones, but the first ones by id again.
    assert replay(jobs, target(node), limit=10).added == 10
    assert len(of_both(node)) == 10
    # Whatever became of the jobs meanwhile.
    reply = node.ask("GETJOB", "COUNT", 3, "FROM", "a", "b")
    assert isinstance(reply, list)
    node.ask("ACKJOB", *[job[1] for job in reply])
    done = {job[2] for job in reply}
    assert replay(jobs.repartition(7), target(node)).queues == {"a": 15, "b": 15}
    assert of_both(node) == sorted({b"body %d" % n for n in range(30)} - done)


def test_at_least_once_needs_no_keys_and_adds_jobs_again(
    spark: SparkSession, disque_server: NodeFactory
) -> None:
    node = disque_server()
    for _ in range(2):
        assert replay(frame(spark, ("1", "q", b"x")), target(node, mode="at-least-once")).added == 1
    assert bodies(node, "q") == [b"x"] * 2
    assert node.ask("QKEYS") == []


def test_jobs_in_the_list_of_an_earlier_version_are_left_out(
    spark: SparkSession, disque_server: NodeFactory, tmp_path: Path
) -> None:
    node = disque_server()
    done = tmp_path / "done"
    done.write_text('"id-0"\n"id-7"\n"id-7"\n"id-1')  # it died here
    jobs = Choice(table(spark, tmp_path / "table", 30)).jobs(spark)
    for dry_run in True, False:
        outcome = replay(jobs, target(node, done=done), limit=28, dry_run=dry_run)
        assert (outcome.added, outcome.already) == (28, 2)
    assert of_both(node) == sorted(b"body %d" % n for n in range(30) if n not in (0, 7))
    assert replay(jobs, target(node, done=tmp_path / "none")).already == 0
    assert len(of_both(node)) == 30


def test_no_more_are_added_in_a_second_than_the_rate_says() -> None:
    """Not even after a pause: the delay is not made up for."""
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    rows = pa.RecordBatch.from_pydict({"n": list(range(115))})
    times: list[float] = []
    found: list[int] = []
    chunks = paced([rows, rows], 100.0, sleep, lambda: now)
    for chunk in chunks:
        found += chunk.column("n").to_pylist()
        times += [now] * chunk.num_rows
        if len(times) == 50:
            now += 4.9  # like a node that does not answer; 0.1 of it had to pass anyway
    assert found == [*range(115)] * 2
    assert times[-1] == pytest.approx(2.25 + 4.8)
    for first, time in enumerate(times):
        for later, end in enumerate(times[first:], first):
            if end > times[later - 1]:  # a chunk begins
                assert later - first <= 100 * (end - time) + 1e-6


def test_a_replay_at_a_rate_is_done_by_one_task(
    spark: SparkSession, disque_server: NodeFactory
) -> None:
    node = disque_server()
    jobs = frame(spark, *[(f"{n}", "q", b"x") for n in range(20)]).repartition(4)
    assert replay(jobs, target(node, rate=1e6)).added == node.ask("QLEN", "q") == 20
    info = node.info("stats")
    assert int(info["total_connections_received"]) < 8


def test_refused_jobs_are_counted_with_the_reason(
    spark: SparkSession, disque_server: NodeFactory
) -> None:
    node = disque_server()
    node.ask("PAUSE", "shut", "in")
    jobs = spark.createDataFrame(
        [("1", "shut", b"x"), ("2", "open", b"y"), ("3", "open", None), ("4", None, b"z")], JOB
    )
    outcome = replay(jobs, target(node))
    assert (outcome.added, outcome.without_body, outcome.queues) == (1, 1, {"open": 1})
    assert outcome.refused.pop(NO_QUEUE) == 1
    ((error, count),) = outcome.refused.items()
    assert (error.split()[0], count) == ("PAUSED", 1)
    assert len(error.split()) > 1
    assert bodies(node, "open") == [b"y"]


def test_without_bodies_or_nodes_there_is_nothing_to_replay(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(ReplayError):
        Choice(audit=tmp_path).jobs(spark)
    with pytest.raises(PythonException, match=r"127\.0\.0\.1:1"):
        replay(frame(spark, ("1", "q", b"x")), Target(["127.0.0.1:1"], failover=1))
