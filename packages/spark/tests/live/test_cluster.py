"""The pipelines on a standalone cluster, while one of its workers is killed."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.dataset
import pytest

from disque_spark.package import packed
from packages.spark.tests.support.lease_reader import left_at
from packages.spark.tests.support.planted_log import generate
from packages.spark.tests.support.spark_cluster import SparkCluster
from tests.support.harness import DRIVER_SECONDS, NodeFactory, wait_until

pytestmark = [
    pytest.mark.live,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not os.environ.get("DISQUE_SPARK_LONG"), reason="takes minutes; set DISQUE_SPARK_LONG"
    ),
]

SINK = """
import sys
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from disque_spark import register

spark = SparkSession.builder.getOrCreate()
register(spark)
rows = spark.range(20_000, numPartitions=20).select(f.concat(f.lit("body "), "id").alias("body"))
sink = rows.write.format("disque").mode("append")
sink.option("nodes", sys.argv[1]).option("queue", "out").save()
spark.stop()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@contextmanager
def pipeline(
    cluster: SparkCluster, place: Path, *arguments: str | Path
) -> "Iterator[subprocess.Popen[str]]":
    """Run the command, in its own directory that nobody else may enter."""
    place.mkdir(mode=0o700)
    command = Path(sys.executable).with_name("disque-pipeline")
    with subprocess.Popen(
        [str(command), *map(str, arguments), *cluster.conf],
        cwd=place,
        env={**cluster.environment, "TMPDIR": str(place)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def lose_a_worker(cluster: SparkCluster) -> None:
    cluster.kill_worker()
    cluster.add_worker(f"worker{os.urandom(4).hex()}")


def test_an_archive_loses_nothing_with_a_worker(
    cluster: SparkCluster, disque_server: NodeFactory, tmp_path: Path
) -> None:
    node = disque_server()
    jobs = 3_000
    for n in range(jobs):
        node.ask("ADDJOB", "q", f"body {n}", 0, "RETRY", 600)
    table = tmp_path / "table"
    archive = ("archive", "--nodes", f"127.0.0.1:{node.port}", "--queue", "q", "--output", table)
    with pipeline(
        cluster, tmp_path / "own", *archive, "--seconds", "0", "--max-jobs", "100"
    ) as run:
        wait_until(lambda: any(table.glob("queue=q/*/*.parquet")), DRIVER_SECONDS)
        lose_a_worker(cluster)
        wait_until(lambda: node.ask("QLEN", "q") == 0 or run.poll() is not None, DRIVER_SECONDS)
        run.send_signal(signal.SIGTERM)
        out, _ = run.communicate(timeout=DRIVER_SECONDS)
    assert run.returncode == 0, out
    bodies = pyarrow.dataset.dataset(table).to_table(["body"]).column("body").to_pylist()
    assert Counter(bodies) == Counter(b"body %d" % n for n in range(jobs))
    assert left_at(node) == []
    replay = ("replay", "--archive", table, "--nodes", f"127.0.0.1:{node.port}", "--to-queue", "r")
    with pipeline(cluster, tmp_path / "again", *replay) as run:
        out, _ = run.communicate(timeout=DRIVER_SECONDS)
    assert f"{jobs} jobs added" in out
    assert node.ask("QLEN", "r") == jobs


def test_an_audit_loses_nothing_with_a_worker(cluster: SparkCluster, tmp_path: Path) -> None:
    planted = generate(tmp_path / "log", 200_000, anomalies=5, skew=0)
    tables = tmp_path / "audit"
    audit = ("audit", tmp_path / "log", "--output", tables)
    with pipeline(cluster, tmp_path / "own", *audit) as run:
        wait_until(lambda: any(tables.rglob("*/jobs")) or run.poll() is not None, DRIVER_SECONDS)
        lose_a_worker(cluster)
        out, _ = run.communicate(timeout=DRIVER_SECONDS)
    assert run.returncode == 0, out
    for kind in ("never-delivered", "never-acknowledged", "poison"):
        assert f"{kind}: {len(planted[kind, ''])}\n" in out
    with pipeline(cluster, tmp_path / "report", "report", tables) as run:
        out, _ = run.communicate(timeout=DRIVER_SECONDS)
    assert run.returncode == 0, out
    assert (tables / "report.html").exists()


def test_a_write_loses_nothing_with_a_worker(
    cluster: SparkCluster, disque_server: NodeFactory, tmp_path: Path
) -> None:
    node = disque_server()
    program = tmp_path / "program.py"
    program.write_text(SINK)
    submit = Path(sys.executable).with_name("spark-submit")
    with subprocess.Popen(
        [
            *(str(submit), *cluster.conf, "--py-files", str(packed(tmp_path))),
            *(str(program), f"127.0.0.1:{node.port}"),
        ],
        cwd=tmp_path,
        env=cluster.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as run:
        wait_until(lambda: node.ask("QLEN", "out") != 0 or run.poll() is not None, DRIVER_SECONDS)
        lose_a_worker(cluster)
        out, _ = run.communicate(timeout=DRIVER_SECONDS)
    assert run.returncode == 0, out
    found = []
    while jobs := node.ask("GETJOB", "NOHANG", "COUNT", 1000, "FROM", "out"):
        assert isinstance(jobs, list)
        found += [body for _, _, body in jobs]
    assert sorted(found) == sorted(b"body %d" % n for n in range(20_000))
