"""What the audit says about the logs of real nodes agrees with what their clients know."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from disque_spark import pipeline
from disque_spark.append_only import find_files
from disque_spark.audit.classify import Finding
from disque_spark.audit.held import are_all, held_in
from disque_spark.audit.rules import (
    AFTER_ACK,
    CLOCK_SKEW,
    EXPIRED,
    LOG_GAP,
    NEVER_DELIVERED,
    POISON,
    TWICE,
    Rules,
)
from disque_spark.audit.run import audit
from disque_spark.cli import commands
from disque_trio import humanize
from packages.spark.tests.support.audit_story import WAITS, told
from packages.spark.tests.support.audited_logs import Audited, audited
from packages.spark.tests.support.live_books import Books

RULES = Rules(settled=0)
NODES = 3

Told = tuple[Path, Books, Audited]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Told:
    directory = tmp_path_factory.mktemp("story")
    books = told(directory)
    return directory, books, audited(logs(directory), RULES)


def logs(directory: Path) -> list[Path]:
    return [directory / f"node-{node}" / "events" for node in range(NODES)]


def reasons_of(story: Told, kind: str) -> dict[str, set[str | None]]:
    """Return the reasons of the findings of ``kind``, by queue; each job of the queue must have a
    finding."""
    _, books, parts = story
    queues: dict[str, set[str | None]] = {}
    for id, reasons in parts.found(kind).items():
        queues.setdefault(books.jobs[id].queue, set()).update(reasons)
    for queue in queues:
        if queue not in ("partition", "killed"):
            assert books.ids(queue) == parts.found(kind).keys() & books.ids(queue)
    return queues


def test_the_table_says_of_each_job_what_its_clients_know(story: Told) -> None:
    directory, books, parts = story
    place = {}
    for node in range(NODES):
        (own,) = [
            line.split()[0]
            for line in (directory / f"node-{node}" / "nodes.conf").read_text().splitlines()
            if "myself" in line
        ]
        place[node] = own
    assert len(books.jobs) > 120
    assert parts.jobs.keys() == books.jobs.keys()
    for id, entry in books.jobs.items():
        job = parts.jobs[id]
        assert job["queue"] == entry.queue
        delivered = len(entry.delivered)
        assert job["deliveries"] in (
            {delivered, delivered - 1} if id in books.unsure else {delivered}
        )
        assert job["nacks_said"] == entry.commands["NACK"]
        assert set(job["delivered_on"]) == {place[node] for node in entry.delivered}  # type: ignore[call-overload]
        if entry.commands["ACKJOB"]:
            assert job["ended"] == "acked"
        elif entry.commands["DELJOB"]:
            assert job["ended"] == "deleted"
        else:
            assert job["ended"] == ("expired" if entry.queue == "expire" else None)


def test_a_job_has_waited_for_as_long_as_its_clients_say(story: Told) -> None:
    _, books, parts = story
    for id in books.ids("done") | books.ids("restarted"):
        entry = books.jobs[id]
        assert abs(parts.jobs[id]["wait_ms"] - 1000 * (entry.first - entry.confirmed)) < 1000


def test_every_second_delivery_is_found_and_why(story: Told) -> None:
    found = reasons_of(story, TWICE)
    unsure = found.pop("lost line", {"retry"})
    assert unsure <= {"retry", LOG_GAP}  # the first delivery may or may not be in the log
    # On a slow machine, jobs are retried more often, and by two nodes at once.
    slow = {"retry", "partition"}
    assert found.pop("killed", {"retry"}) == {"retry"}
    assert "retry" in found["retry"]
    assert found.pop("retry") <= slow
    assert "partition" in found["partition"]
    assert found.pop("partition") <= slow
    assert found == {"nack": {"nack"}, "poison": {"nack"}, "enqueue": {"enqueue"}}


def test_what_was_acknowledged_on_the_other_side_is_found(story: Told) -> None:
    _, books, parts = story
    acked_elsewhere = {
        id
        for id in books.ids("partition")
        if books.jobs[id].commands["ACKJOB"] == 2  # the first time before it came back
    }
    assert len(acked_elsewhere) == 2
    assert parts.found(AFTER_ACK) == {id: {None} for id in acked_elsewhere}


def waiting_for_the_first(parts: Audited) -> set[str]:
    """Return the jobs that wait for their first delivery."""
    return {str(one.job) for one in parts.waits if one.detail == "never delivered"}


def test_what_was_never_delivered_waits_as_far_as_the_logs_know(story: Told) -> None:
    _, books, parts = story
    found = reasons_of(story, NEVER_DELIVERED)
    # The jobs of a killed node may have been delivered there.
    assert found.pop(WAITS, {LOG_GAP}) == {LOG_GAP}
    assert found == {}
    never = waiting_for_the_first(parts) | parts.found(NEVER_DELIVERED).keys()
    assert never == books.ids("lost") | books.ids("kept") | books.ids(WAITS)
    assert reasons_of(story, EXPIRED) == {"expire": {None}}


def test_a_killed_node_is_known_by_its_log(story: Told) -> None:
    _, _, parts = story
    (gap,) = parts.gaps
    assert gap.start < gap.end < parts.seen.last
    for id, reasons in parts.found(NEVER_DELIVERED).items():
        had = {parts.nodes.index(node) for node in parts.jobs[id]["copied_on"]}
        if gap.node in had:
            assert reasons == {LOG_GAP}


def test_poison_is_found_and_correct_clocks_are_not_reported(story: Told) -> None:
    assert reasons_of(story, POISON) == {"poison": {None}}
    assert not [finding for finding in story[2].findings if finding.kind == CLOCK_SKEW]
    assert all(abs(ms) <= 50 for ms in story[2].clocks.ahead)


def test_the_files_of_the_nodes_have_what_waits_and_not_what_is_lost(story: Told) -> None:
    directory, books, parts = story
    files = find_files([str(directory / "node-*")])
    assert are_all(files, parts.nodes)
    held = {row["job"] for path in files for batch in held_in(path) for row in batch.to_pylist()}
    never = waiting_for_the_first(parts) | set(parts.found(NEVER_DELIVERED))
    assert never - held == books.ids("lost")
    assert never & held == books.ids(WAITS) | books.ids("kept")


def test_the_whole_audit_says_the_same(story: Told, spark: SparkSession, tmp_path: Path) -> None:
    directory, books, parts = story
    paths = [str(log) for log in logs(directory)]
    result = audit(spark, paths, tmp_path / "audit", RULES)
    assert (result.events, result.unknown) == (parts.seen.events, 0)
    assert all_findings(spark, tmp_path) == sorted(map(short, parts.findings))
    jobs = spark.read.parquet(str(tmp_path / "audit" / "current" / "jobs")).drop("day").collect()
    assert {row["id"]: row["deliveries"] for row in jobs} == {
        id: row["deliveries"] for id, row in parts.jobs.items()
    }
    # With the files of the nodes, and again without them.
    aofs = [str(directory / "node-*")]
    result = audit(spark, paths, tmp_path / "audit", RULES, aofs=aofs)
    never = {
        job: reason
        for kind, reason, job in all_findings(spark, tmp_path)
        if kind == NEVER_DELIVERED
    }
    waiting = books.ids(WAITS) | books.ids("kept")
    assert never == dict.fromkeys(parts.found(NEVER_DELIVERED), "held") | dict.fromkeys(
        map(str, books.ids("lost")), "lost"
    )
    assert result.reasons[NEVER_DELIVERED, "lost"] == 3
    assert result.held is not None
    assert result.held >= len(waiting)
    assert result.unlogged == 0
    table = spark.read.parquet(str(tmp_path / "audit" / "current" / "held"))
    assert waiting <= {row["job"] for row in table.collect()}
    assert {row["node"] for row in table.collect()} <= set(parts.nodes)
    audit(spark, paths, tmp_path / "audit", RULES)
    assert not (tmp_path / "audit" / "current" / "held").exists()
    assert all_findings(spark, tmp_path) == sorted(map(short, parts.findings))


def test_the_command_reports_waiting_and_lost_jobs(
    story: Told, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory, _, parts = story
    words = ["audit", *map(str, logs(directory)), "--output", str(tmp_path / "audit")]
    words += ["--settled", "0", "--aof", *(str(directory / f"node-{n}") for n in range(NODES))]
    assert pipeline.main([*words, "--check"], lambda options: spark) == commands.FOUND
    said = capsys.readouterr().out.splitlines()
    held = len(parts.found(NEVER_DELIVERED))
    some = f"{held} held, " if held else ""
    assert f"{NEVER_DELIVERED}: {held + 3} ({some}3 lost)" in said
    assert any(f"{humanize.jobs(len(parts.waits))} wait, the oldest since" in line for line in said)
    assert any(line.endswith("append-only files, 0 of them not in the logs") for line in said)
    words[-1] = str(directory / "nowhere")
    assert pipeline.main(words, lambda options: spark) == commands.FAILED


def short(finding: Finding) -> tuple[str, str, str]:
    return (finding.kind, finding.reason or "", finding.job or "")


def all_findings(spark: SparkSession, place: Path) -> list[tuple[str, str, str]]:
    rows = spark.read.parquet(str(place / "audit" / "current" / "findings")).collect()
    return sorted((row["kind"], row["reason"] or "", row["job"] or "") for row in rows)
