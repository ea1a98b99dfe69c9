"""Adding jobs that a filter selects to real nodes again."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from disque_spark.audit.run import audit
from disque_spark.client import WireError
from disque_spark.replay import Choice, ReplayError, Target, _note, _noted, replay
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


def test_a_second_run_goes_on_where_the_first_one_ended(
    spark: SparkSession, disque_server: NodeFactory, tmp_path: Path
) -> None:
    node = disque_server()
    done = tmp_path / "notes" / "done"
    archive = table(spark, tmp_path / "table", 30)
    first = replay(Choice(archive).jobs(spark), target(node, done=done), limit=10)
    with done.open("a") as file:
        file.write('"id-1')  # it died here
    second = replay(Choice(archive).jobs(spark), target(node, done=done))
    third = replay(Choice(archive).jobs(spark), target(node, done=done))
    assert (third.added, third.already) == (0, 30)
    assert (first.added, second.added, second.already) == (10, 20, 10)
    assert bodies(node, "a") + bodies(node, "b") == sorted(
        b"body %d" % n for n in range(0, 30, 2)
    ) + sorted(b"body %d" % n for n in range(1, 30, 2))


def test_a_note_begins_a_line_of_its_own_also_after_half_a_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr("os.fsync", synced.append)
    done = tmp_path / "done"
    done.write_text('"id-0"\n"id-1')
    for ids in (["id-2", "id-3"], ["id-4"]):
        _note(done, ids)
    assert done.read_text() == '"id-0"\n"id-1\n"id-2"\n"id-3"\n"id-4"\n'
    assert _noted(done) == {"id-0", "id-2", "id-3", "id-4"}
    assert len(synced) == 2


def test_no_more_are_added_in_a_second_than_the_rate_says(
    spark: SparkSession, disque_server: NodeFactory, tmp_path: Path
) -> None:
    """Not even after a pause: the delay is not made up for."""
    node = disque_server()
    now = 0.0
    pause = 0.0
    most = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now, most
        now += seconds
        length = node.ask("QLEN", "a")
        assert isinstance(length, int)
        most = max(most, length - 100 * (now - pause))

    def progress(text: str) -> None:
        nonlocal now, pause
        if text.startswith("50 "):
            now += 4.9  # like a node that does not answer; 0.1 of it had to pass anyway
            pause = 4.8

    rows = [(f"{n}", "a", b"x") for n in range(230)]
    jobs = spark.createDataFrame(rows, JOB)
    limited = target(node, rate=100.0)
    outcome = replay(jobs, limited, progress=progress, sleep=sleep, clock=lambda: now)
    assert outcome.added == node.ask("QLEN", "a") == 230
    assert now == pytest.approx(2.2 + 4.8)
    assert most <= 1e-6


def test_refused_jobs_are_counted_with_the_reason(
    spark: SparkSession, disque_server: NodeFactory, tmp_path: Path
) -> None:
    node = disque_server()
    node.ask("PAUSE", "shut", "in")
    jobs = frame(spark, ("1", "shut", b"x"), ("2", "open", b"y"), ("3", "open", None))
    outcome = replay(jobs, target(node, done=tmp_path / "done"))
    assert (outcome.added, outcome.without_body) == (1, 1)
    ((error, count),) = outcome.refused.items()
    assert (error.split()[0], count) == ("PAUSED", 1)
    assert (tmp_path / "done").read_text() == '"2"\n'


def test_without_bodies_or_nodes_there_is_nothing_to_replay(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(ReplayError):
        Choice(audit=tmp_path).jobs(spark)
    with pytest.raises(WireError):
        replay(frame(spark, ("1", "q", b"x")), Target(["127.0.0.1:1"], failover=0.0))
