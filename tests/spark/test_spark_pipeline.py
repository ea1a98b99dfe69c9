"""The command ``disque-pipeline``: what it says, and how it ends."""

import argparse
import json
from pathlib import Path

import pytest
from harness import NodeFactory
from pyspark.sql import SparkSession

from disque_trio.spark import pipeline
from tools.bench.audit_log import generate

pytestmark = [pytest.mark.live, pytest.mark.timeout(400)]


class Command:
    """Runs commands in the session of the tests."""

    def __init__(self, spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
        self._spark = spark
        self._capsys = capsys
        self.out = ""
        self.err = ""

    def __call__(self, *arguments: str | Path) -> int:
        def session(options: argparse.Namespace) -> SparkSession:
            return self._spark

        self._capsys.readouterr()
        status = pipeline.main(list(map(str, arguments)), session)
        self.out, self.err = self._capsys.readouterr()
        return status


@pytest.fixture
def command(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(spark, capsys)


def test_a_log_becomes_tables_and_a_page(command: Command, tmp_path: Path) -> None:
    planted = generate(tmp_path / "log", 3_000, anomalies=2)
    audit = ("audit", tmp_path / "log", "--output", tmp_path / "audit")
    assert command(*audit) == 0
    assert f"never-delivered: {len(planted['never-delivered', ''])}\n" in command.out
    assert command(*audit, "--check") == 3
    assert command.out.startswith("0 new events in 0 segments")
    assert command("report", tmp_path / "audit") == 0
    assert (tmp_path / "audit" / "report.html").read_text().startswith("<!doctype html>")
    assert command("report", tmp_path / "audit", "--json", tmp_path / "r.json") == 0
    numbers = json.loads((tmp_path / "r.json").read_text())
    assert numbers["findings"]["clock-skew"] == 2


def test_a_check_of_a_log_without_findings_ends_well(command: Command, tmp_path: Path) -> None:
    generate(tmp_path / "log", 500, anomalies=0, skew=0)
    assert command("audit", tmp_path / "log", "--output", tmp_path / "audit", "--check") == 0
    assert "no findings\n" in command.out


def test_a_queue_is_archived_and_replayed(
    command: Command, disque_server: NodeFactory, tmp_path: Path
) -> None:
    node = disque_server()
    for n in range(20):
        node.ask("ADDJOB", "orders", f"order {n}", 0, "RETRY", 600)
    nodes = ("--nodes", f"127.0.0.1:{node.port}")
    table = tmp_path / "table"
    archive = ("archive", *nodes, "--queue", "orders", "--output", table)
    assert command(*archive, "--available-now") == 0, command.err
    assert command.out == f"20 jobs archived in {table}\n"
    choice = ("replay", *nodes, "--archive", table, "--to-queue", "again")
    assert command(*choice, "--where", "cast(body as string) = 'order 7'", "--dry-run") == 0
    assert command.out == "1 jobs would be added\n  again: 1\n"
    assert node.ask("QLEN", "again") == 0
    assert command(*choice, "--limit", "5", "--rate", "1000") == 0
    assert node.ask("QLEN", "again") == 5


def test_explain_prints_the_plan_and_does_nothing(
    command: Command, disque_server: NodeFactory, tmp_path: Path
) -> None:
    generate(tmp_path / "log", 200, anomalies=0)
    audit = ("audit", tmp_path / "log", "--output", tmp_path / "audit")
    assert command(*audit, "--explain") == 0
    assert "Physical Plan" in command.out
    assert not (tmp_path / "audit").exists()
    command(*audit)
    assert command("report", tmp_path / "audit", "--explain") == 0
    assert "Physical Plan" in command.out
    assert not (tmp_path / "audit" / "report.html").exists()
    node = disque_server()
    node.ask("ADDJOB", "q", "x", 0)
    nodes = ("--nodes", f"127.0.0.1:{node.port}")
    table = tmp_path / "table"
    assert command("archive", *nodes, "--queue", "q", "--output", table, "--explain") == 0
    assert "Physical Plan" in command.out
    assert node.ask("QLEN", "q") == 1
    command("archive", *nodes, "--queue", "q", "--output", table, "--available-now")
    assert command("replay", *nodes, "--archive", table, "--explain") == 0
    assert "Physical Plan" in command.out
    assert node.ask("QLEN", "q") == 0


def test_paths_that_are_missing_are_named(command: Command, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    for arguments in (
        ("audit", nowhere, "--output", tmp_path / "audit"),
        ("report", nowhere),
        ("replay", "--archive", nowhere),
        ("replay", "--archive", tmp_path, "--audit", nowhere),
    ):
        assert command(*arguments) == 1
        assert str(nowhere) in command.err
        assert command.err.count("\n") == 1


def test_what_spark_says_of_a_bad_filter_is_told_in_short(
    command: Command, spark: SparkSession, tmp_path: Path
) -> None:
    rows = [("1", "q", b"x")]
    table = tmp_path / "table"
    spark.createDataFrame(rows, "id string, queue string, body binary").write.parquet(str(table))
    assert command("replay", "--archive", table, "--where", "colour = 'red'", "--dry-run") == 1
    assert "colour" in command.err
    assert command.err.count("\n") <= 4


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["audit"],
        ["audit", "log"],
        ["archive", "--output", "x"],
        ["replay", "--archive", "x", "--rate", "0"],
    ],
)
def test_wrong_arguments_are_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        pipeline.main(arguments)
    assert ended.value.code == 2


def test_a_replay_without_bodies_is_refused(command: Command, tmp_path: Path) -> None:
    assert command("replay", "--audit", tmp_path) == 2
