"""Programs and commands on a cluster: the package reaches the executors as a zip file."""

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pyarrow.dataset
import pytest

from disque_spark import pipeline
from disque_spark.package import packed
from disque_trio.protocol.serialjob import JobWriter, loadjob
from packages.spark.tests.support import quick_java
from packages.spark.tests.support.lease_reader import left_at
from packages.spark.tests.support.planted_log import generate
from packages.spark.tests.support.spark_home import spark_home
from tests.support.harness import NodeFactory

SCRIPT = """
import json
import sys

from pyspark.sql import SparkSession

import disque_spark
from disque_spark import register
from disque_spark.events import read_events

spark = SparkSession.builder.getOrCreate()
register(spark)
directory = sys.argv[1]


def where_from(_):
    import disque_spark

    return disque_spark.__file__


print(json.dumps({
    "driver": disque_spark.__file__,
    "executor": spark.sparkContext.parallelize([0], 1).map(where_from).first(),
    "jobs": [row.id for row in spark.read.format("disque-aof").load(directory).collect()],
    "by source": spark.read.format("disque-events").load(directory).count(),
    "by spark": read_events(spark, directory).count(),
}))
spark.stop()
"""


LONG = bool(os.environ.get("DISQUE_SPARK_LONG"))
# An executor is one more JVM, and only the test of all executors needs two.
LOCAL_CLUSTER = (
    *("--master", f"local-cluster[{2 if LONG else 1},1,512]"),
    *("--conf", "spark.executor.memory=512m"),
    *("--conf", "spark.driver.memory=512m"),
    *("--conf", "spark.ui.enabled=false"),
    *("--conf", "spark.driver.bindAddress=127.0.0.1"),
    *("--conf", "spark.driver.host=127.0.0.1"),
    *("--conf", "spark.sql.shuffle.partitions=2"),
    *quick_java.WORDS,
)


def other_python(directory: Path) -> Path:
    """A Python with the libraries of this one, but without this package."""
    venv.create(directory, symlinks=True)
    packages = sysconfig.get_path("purelib", vars={"base": str(directory)})
    # The .pth files in a directory that a .pth file names have no effect; one of them is this
    # package.
    Path(packages, "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return directory / "bin" / "python"


class Home:
    """A separate home of Spark: tests must leave nothing behind in the real one."""

    def __init__(self, directory: Path) -> None:
        self.directory = spark_home(directory)
        self._python = other_python(directory.parent / "python")

    def run(self, *command: str | Path) -> str:
        """Return the output of a program that must succeed."""
        clean = {n: v for n, v in os.environ.items() if not n.startswith(("PY", "SPARK"))}
        result = subprocess.run(
            list(map(str, command)),
            cwd=self.directory.parent,
            env={
                **clean,
                **quick_java.ENVIRONMENT,
                "PYSPARK_PYTHON": str(self._python),
                "SPARK_HOME": str(self.directory),
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stderr[-5000:]
        return result.stdout

    def submit(self, *arguments: str | Path) -> str:
        """Run ``spark-submit`` on a cluster, with the package as a zip file."""
        archive = packed(self.directory.parent)
        submit = self.directory / "bin" / "spark-submit"
        return self.run(submit, *LOCAL_CLUSTER, "--py-files", archive, *arguments)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "spark")


@pytest.mark.skipif(not LONG, reason="takes half a minute; set DISQUE_SPARK_LONG")
@pytest.mark.timeout(600)
def test_a_submitted_program_has_the_sources_on_all_executors(tmp_path: Path, home: Home) -> None:
    data = tmp_path / "data"
    data.mkdir()
    id = b"D-cccccccc-%024d-05a1" % 7
    job = JobWriter().encode(id, 2, 0, 1, 2 << 30, 1, 0, 60, 0, 0, b"q", b"body", b"")
    (data / "disque.aof").write_bytes(loadjob(job))
    (data / "events-cccccccc-0000000000001-0.jsonl").write_text(
        '{"time":1,"node":"c","event":"added"}\n{"time":2,"node":"c","event":"acked"}\n'
    )
    script = tmp_path / "program.py"
    script.write_text(SCRIPT)
    answer = json.loads(home.submit(script, data).splitlines()[-1])
    assert answer["jobs"] == [id.decode()]
    assert (answer["by source"], answer["by spark"]) == (2, 2)
    assert "disque_spark.zip" in answer["driver"]
    assert "disque_spark.zip" in answer["executor"]


@pytest.mark.live
@pytest.mark.timeout(600)
def test_an_archive_is_submitted_to_a_cluster(
    tmp_path: Path, home: Home, disque_server: NodeFactory
) -> None:
    node = disque_server()
    for n in range(50):
        node.ask("ADDJOB", "q", f"body {n}", 0, "RETRY", 600)
    table = tmp_path / "table"
    archive = ("archive", "--nodes", f"127.0.0.1:{node.port}", "--queue", "q", "--output", table)
    assert "50 jobs archived" in home.submit(pipeline.__file__, *archive, "--available-now")
    bodies = pyarrow.dataset.dataset(table).to_table(["body"]).column("body").to_pylist()
    assert sorted(bodies) == sorted(b"body %d" % n for n in range(50))
    assert left_at(node) == []


@pytest.mark.timeout(600)
def test_an_audit_on_a_cluster_sends_the_package_along(tmp_path: Path, home: Home) -> None:
    planted = generate(tmp_path / "log", 2_000, anomalies=2, skew=0)
    audit = ("audit", tmp_path / "log", "--output", tmp_path / "audit")
    out = home.run(Path(sys.executable).with_name("disque-pipeline"), *audit, *LOCAL_CLUSTER)
    assert f"never-delivered: {len(planted['never-delivered', ''])}\n" in out
