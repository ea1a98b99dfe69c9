"""The pipelines as clients of Spark Connect, in processes that have no JVM. The session of the
tests is the server."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset
import pytest
from pyspark.sql import SparkSession

from packages.spark.tests.support.lease_reader import left_at
from packages.spark.tests.support.planted_log import generate
from tests.support import PYTHONPATH, ROOT
from tests.support.harness import NodeFactory

pytestmark = [pytest.mark.live, pytest.mark.timeout(400)]

LONG = bool(os.environ.get("DISQUE_SPARK_LONG"))
PROGRAM = """
import sys

from pyspark.sql import SparkSession

import disque_spark

remote, node = sys.argv[1:]
spark = SparkSession.builder.remote(remote).getOrCreate()
disque_spark.register(spark)
disque_spark.register(spark)
rows = spark.range(50).selectExpr("cast(id as string) body")
rows.write.format("disque").mode("append").options(nodes=node, queue="out").save()
queues = spark.read.format("disque-queues").option("nodes", node).load()
print(queues.where("queue = 'out'").first()["len"])
print(spark.read.format("disque-jobs").option("nodes", node).load().count())
with disque_spark.holding(nodes=node, lease_queue="connect"):
    options = {"nodes": node, "queue": "out", "leaseQueue": "connect"}
    print(spark.read.format("disque").options(**options).load().count())
spark.stop()
"""


class Client:
    """Runs programs as clients.

    Attributes:
        url: of the server.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def run(self, *arguments: str | Path) -> str:
        """Return the output of a Python that must succeed, without a Java to start."""
        done = subprocess.run(
            [sys.executable, *map(str, arguments)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": PYTHONPATH, "JAVA_HOME": "/nonexistent"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    def pipeline(self, *arguments: str | Path) -> str:
        """Return the output of the command."""
        return self.run("-m", "disque_spark.pipeline", *arguments, "--remote", self.url)


@pytest.fixture
def client(spark: SparkSession) -> Client:
    port = spark.sparkContext.getConf().get("spark.connect.grpc.binding.port")
    return Client(f"sc://127.0.0.1:{port}")


def test_a_queue_is_archived(client: Client, disque_server: NodeFactory, tmp_path: Path) -> None:
    node = disque_server()
    for n in range(20):
        node.ask("ADDJOB", "q", f"body {n}", 0, "RETRY", 600)
    table = tmp_path / "table"
    archive = ("archive", "--nodes", f"127.0.0.1:{node.port}", "--queue", "q", "--output", table)
    out = client.pipeline(*archive, "--available-now")
    assert out == f"20 jobs archived in {table}\n"
    bodies = pyarrow.dataset.dataset(table).to_table(["body"]).column("body").to_pylist()
    assert sorted(bodies) == sorted(b"body %d" % n for n in range(20))
    assert left_at(node) == []


@pytest.mark.skipif(not LONG, reason="takes half a minute; set DISQUE_SPARK_LONG")
def test_a_log_becomes_tables_and_a_page(client: Client, tmp_path: Path) -> None:
    planted = generate(tmp_path / "log", 3_000, anomalies=2)
    out = client.pipeline("audit", tmp_path / "log", "--output", tmp_path / "audit")
    assert f"never-delivered: {len(planted['never-delivered', ''])}\n" in out
    client.pipeline("report", tmp_path / "audit")
    assert (tmp_path / "audit" / "report.html").exists()


@pytest.mark.skipif(not LONG, reason="takes half a minute; set DISQUE_SPARK_LONG")
def test_a_program_reads_and_writes(
    client: Client, disque_server: NodeFactory, tmp_path: Path
) -> None:
    node = disque_server()
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    out = client.run(program, client.url, f"127.0.0.1:{node.port}")
    assert out.split() == ["50", "50", "50"]
    assert node.ask("QLEN", "out") == 0
