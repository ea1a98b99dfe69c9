"""The package reaches the executors of a cluster as a zip file."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark
import pytest

import disque_trio
from disque_trio.protocol.serialjob import encode_job, encode_nodes, loadjob

SCRIPT = """
import json
import sys

from pyspark.sql import SparkSession

import disque_trio
from disque_trio.spark import register
from disque_trio.spark.events import read_events

spark = SparkSession.builder.getOrCreate()
register(spark)
directory = sys.argv[1]


def where_from(_):
    import disque_trio

    return disque_trio.__file__


print(json.dumps({
    "driver": disque_trio.__file__,
    "executor": spark.sparkContext.parallelize([0], 1).map(where_from).first(),
    "jobs": [row.id for row in spark.read.format("disque-aof").load(directory).collect()],
    "by source": spark.read.format("disque-events").load(directory).count(),
    "by spark": read_events(spark, directory).count(),
}))
spark.stop()
"""


@pytest.mark.timeout(400)
def test_a_submitted_program_has_the_sources_on_all_executors(tmp_path: Path) -> None:
    package = Path(disque_trio.__file__).parent
    archive = tmp_path / "disque_trio.zip"
    with zipfile.ZipFile(archive, "w") as out:
        for path in package.rglob("*.py"):
            out.write(path, path.relative_to(package.parent))
    data = tmp_path / "data"
    data.mkdir()
    id = b"D-cccccccc-%024d-05a1" % 7
    job = encode_job(id, 2, 0, 1, 2 << 30, 1, 0, 60, 0, 0, b"q", b"body", encode_nodes([]))
    (data / "disque.aof").write_bytes(loadjob(job))
    (data / "events-cccccccc-0000000000001-0.jsonl").write_text(
        '{"time":1,"node":"c","event":"added"}\n{"time":2,"node":"c","event":"acked"}\n'
    )
    script = tmp_path / "program.py"
    script.write_text(SCRIPT)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PY", "SPARK"))
    }
    # Its workers write below Spark's home, which is no place for what tests leave behind.
    home = tmp_path / "spark"
    home.mkdir()
    for path in Path(pyspark.__file__).parent.iterdir():
        (home / path.name).symlink_to(path)
    result = subprocess.run(
        [
            str(home / "bin" / "spark-submit"),
            *("--master", "local-cluster[1,1,640]"),
            *("--driver-memory", "512m"),
            *("--conf", "spark.executor.memory=512m"),
            *("--conf", "spark.ui.enabled=false"),
            *("--conf", "spark.driver.bindAddress=127.0.0.1"),
            *("--conf", "spark.driver.host=127.0.0.1"),
            *("--py-files", str(archive)),
            *(str(script), str(data)),
        ],
        cwd=tmp_path,
        env={
            **environment,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr.decode()[-5000:]
    answer = json.loads(result.stdout.decode().splitlines()[-1])
    assert answer["jobs"] == [id.decode()]
    assert (answer["by source"], answer["by spark"]) == (2, 2)
    assert "disque_trio.zip" in answer["driver"]
    assert "disque_trio.zip" in answer["executor"]
