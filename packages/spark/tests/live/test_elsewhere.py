"""Pipelines whose files are all on S3; this Spark has no hadoop-aws, so only pyarrow reads them."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from disque_spark.audit.manifest import FINDINGS, JOBS, MINUTES
from disque_spark.audit.run import audit
from disque_spark.audit.tables import read_table
from disque_spark.files import location
from disque_spark.pipeline import main
from disque_spark.replay import Choice
from packages.spark.tests.support.planted_log import generate
from packages.spark.tests.support.s3 import Bucket
from packages.spark.tests.unit.test_audit_aof import job, job_id


def upload(files: list[Path], directory: str) -> None:
    for file in files:
        (location(directory) / file.name).write_bytes(file.read_bytes())


def test_an_audit_is_made_told_and_replayed_on_s3(
    spark: SparkSession, s3: Bucket, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs, tables = f"{s3.uri}/node/events", f"{s3.uri}/audit"
    generate(tmp_path / "log", 3_000, anomalies=5, chunk=100)
    files = sorted((tmp_path / "log").iterdir())
    here = audit(spark, [str(tmp_path / "log")], tmp_path / "audit")

    def run(*words: str) -> int:
        return main(words, lambda options: spark)

    for some in (files[: len(files) // 2], files):  # the second run continues
        upload(some, logs)
        assert run("audit", logs, "--output", tables) == 0
    assert run("audit", f"{s3.uri}/*/events/*.jsonl", "--output", tables) == 0
    assert "0 new events" in capsys.readouterr().out
    for table in (JOBS, MINUTES, FINDINGS):
        rows = [
            sorted(map(str, read_table(spark, place, table).drop("trace").toLocalIterator()))
            for place in (tmp_path / "audit", tables)
        ]
        assert rows[0] == rows[1]
    # Two versions and their files are kept, as on a local file system.
    assert [file.name for file in (location(tables) / "manifests").files()] == [
        "000001.json",
        "000002.json",
    ]

    assert run("report", tables, "--html", f"{tables}/r.html", "--json", f"{tables}/r.json") == 0
    assert location(f"{tables}/r.html").read_bytes().startswith(b"<!doctype html>")
    numbers = json.loads(location(f"{tables}/r.json").read_bytes())
    assert numbers["jobs"]["jobs"] == here.jobs

    location(f"{s3.uri}/backup/disque.aof").write_bytes(job(1) + job(2))
    found = Choice(aof=[f"{s3.uri}/backup"]).jobs(spark).collect()
    assert {row["id"] for row in found} == {job_id(1), job_id(2)}


def test_errors_on_s3_are_reported_in_one_line(
    spark: SparkSession, s3: Bucket, capsys: pytest.CaptureFixture[str]
) -> None:
    def says(*words: str) -> str:
        assert main(words, lambda options: spark) == 1
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1
        return lines[0]

    assert "nothing-here" in says("audit", f"{s3.uri}/nothing-here", "--output", f"{s3.uri}/audit")
    location(f"{s3.uri}/events-1.jsonl").write_bytes(b"{}\n")
    log = f"{s3.uri}/events-1.jsonl"
    assert "no bucket no-bucket" in says("audit", log, "--output", "s3a://no-bucket/audit")
    assert "no bucket no-bucket" in says("audit", "s3a://no-bucket/*", "--output", f"{s3.uri}/a")
    assert "no audit at" in says("report", f"{s3.uri}/audit")
