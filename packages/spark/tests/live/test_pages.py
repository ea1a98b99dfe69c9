"""Commands and programs on the shorter pages docs/*.md are run as written, in the session
that the other tests also use."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from disque_spark.audit.run import audit
from disque_spark.files import location
from disque_spark.pipeline import main
from packages.spark.tests.support.planted_log import generate
from packages.spark.tests.support.s3 import Bucket
from packages.spark.tests.unit.test_audit_aof import aof, job
from tests.support.documented import Typist, commands, section
from tests.support.harness import free_port

SHOP = "From a web shop's orders to a table and a report"
Type = Callable[..., str]


@pytest.fixture
def type_in(spark: SparkSession, tmp_path: Path) -> Type:
    """Types commands, and returns what they print. Further arguments replace texts in them."""

    def start(script: str, **others: str) -> str:
        typist = Typist(tmp_path, others, lambda arguments: main(arguments, lambda _: spark))
        return typist.type(script)

    return start


def chosen(script: str, *starts: str) -> str:
    """Return the commands that begin with one of ``starts``; others need other machines, or take
    long."""
    lines = [line for line in script.splitlines(True) if line.startswith(starts)]
    assert lines
    return "".join(lines)


def programs(page: str, title: str) -> str:
    """Return the Python programs below a title."""
    found = re.findall(r"^```python\n(.*?)^```", section(page, title), re.MULTILINE | re.DOTALL)
    assert found
    return "\n".join(found)


@pytest.mark.live
def test_a_watch_is_started_and_its_health_is_asked_for(
    type_in: Type, spark: SparkSession, tmp_path: Path
) -> None:
    node = commands("spark-pipelines.md", SHOP).partition(".venv/bin/disque-pipeline")[0]
    looks = commands("spark-watch.md", "Looking after it").partition("/opt/disque")[0]
    endless = commands("spark-watch.md", "Watching: the audit while nodes run")
    endless = chosen(endless, ".venv/bin/disque-pipeline watch /tmp/shop").splitlines()[0]
    written = "until grep -q delivered /tmp/shop/node/events/*; do sleep 0.1; done\n"
    shop = {"7711": str(free_port()), "9104": str(free_port()), "/tmp/shop": str(tmp_path / "shop")}
    printed = type_in(
        f"{node}redis-cli -p 7711 GETJOB FROM orders\n{written}{looks}{endless} --looks 1\n", **shop
    )
    assert re.search(r"^done, 2 looks, [1-9]\d* events", printed, re.MULTILINE)
    assert spark.read.parquet(str(tmp_path / "shop" / "live" / "current" / "jobs")).count() == 1000
    assert (tmp_path / "shop" / "live.html").read_text().startswith("<!doctype html>")


@pytest.mark.live
def test_the_tables_of_an_audit_are_read(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    generate(tmp_path / "log", 1_000, anomalies=2)
    file = aof(tmp_path / "node", job(1), job(2))
    audit(spark, [str(tmp_path / "log")], tmp_path / "audit", aofs=[str(file)])
    queries = [
        line
        for title in ("The command", "With append-only files")
        for line in commands("spark-audit.md", title).splitlines()
        if not line.startswith("disque-pipeline")
    ]
    assert len(queries) == 5
    script = "\n".join([*queries, programs("spark-scale.md", "The directory")])
    names = {"spark": spark, "f": f}
    exec(script.replace('"/audit', f'"{tmp_path}/audit'), names)
    printed = capsys.readouterr().out
    assert len(re.findall(r"^\|D-", printed, re.MULTILINE)) == 2  # the jobs that are in no log
    assert re.search(r"^\|max\(most_in_a_second\)\|\n[-+]*\n\| *[1-9]", printed, re.MULTILINE)
    assert {"id", "day"} <= set(names["jobs"].columns)
    assert names["files"]
    assert all(place.is_file() for place in names["files"])


@pytest.mark.live
def test_an_audit_on_a_cluster(type_in: Type, spark: SparkSession, tmp_path: Path) -> None:
    """Use the session of the tests instead of one with that master or server."""
    generate(tmp_path / "shared" / "events", 2_000, anomalies=0, skew=0)
    master = commands("spark-clusters.md", "A cluster with a master")
    server = commands("spark-clusters.md", "Spark Connect")
    shared = {"/shared": str(tmp_path / "shared")}
    shared["/tmp/disque_spark.zip"] = str(tmp_path / "disque_spark.zip")
    shared["15002"] = spark.conf.get("spark.connect.grpc.binding.port") or ""
    printed = type_in(
        chosen(master, "disque-pipeline audit", "python3 -m disque_spark.package", "cd ")
        + chosen(server, "disque-pipeline audit"),
        **shared,
    )
    assert re.search(r"^[1-9]\d* new events in 3 segments", printed)
    assert "\n0 new events in 0 segments" in printed
    assert (tmp_path / "disque_spark.zip").stat().st_size > 100_000
    program = programs("spark-clusters.md", "Managed platforms (not tried)")
    exec(program.replace("/shared", shared["/shared"]), {"spark": spark})


@pytest.mark.live
def test_an_audit_of_logs_on_s3(type_in: Type, s3: Bucket, tmp_path: Path) -> None:
    generate(tmp_path / "log", 500, anomalies=0, skew=0)
    for file in (tmp_path / "log").iterdir():
        (location(f"{s3.uri}/logs/node/events") / file.name).write_bytes(file.read_bytes())
    page = commands("spark-files.md", "Files on S3, Azure, Google Cloud and HDFS")
    both = chosen(page, "disque-pipeline")
    buckets = {"s3a://logs": f"{s3.uri}/logs", "s3a://results": f"{s3.uri}/results"}
    printed = type_in(both, **buckets)
    assert printed.count("results/") >= 2
    report = location(f"{s3.uri}/results/report.html").read_bytes()
    assert b"No job was lost" in report
