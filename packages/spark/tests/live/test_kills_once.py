"""Drivers, workers and nodes killed with -9 while jobs are written exactly once, and while they are
processed: each body is there once, and each job is done and has one result."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support import PYTHONPATH
from tests.support.harness import ClusterFactory, LiveNode, NodeFactory, wait_until

LONG = bool(os.environ.get("DISQUE_SPARK_LONG"))
pytestmark = [
    pytest.mark.live,
    pytest.mark.timeout(2000),
    pytest.mark.skipif(not LONG, reason="starts several Sparks; set DISQUE_SPARK_LONG"),
]
FILES = 8
ROWS = 2000  # a file
JOBS = 4000
START = 400.0  # s; on a busy machine, a driver may take minutes to start

SESSION = """
import sys, time
from pyspark.sql import SparkSession
from disque_spark import process, register
nodes, directory = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
"""
STREAM = (
    SESSION
    + """
register(spark)
stream = spark.readStream.schema("body string").option("maxFilesPerTrigger", 1)
writer = stream.json(directory + "/in").repartition(3, "body").writeStream.format("disque").options(
    nodes=nodes, queue="q", mode="exactly-once", replicate=2, pipeline=50, failover=60, retries=10,
    checkpointLocation=directory + "/checkpoint")
writer.trigger(availableNow=True).start().awaitTermination()
"""
)
WORK = (
    SESSION
    + """
def function(job):
    time.sleep(0.001)
    return job.body
print(process("q", function, nodes=nodes, results="r", wait=5))
"""
)


class Program:
    """A driver, its JVM and its workers, all in one process group."""

    def __init__(self, text: str, nodes: list[LiveNode], directory: Path) -> None:
        addresses = ",".join(f"127.0.0.1:{node.port}" for node in nodes)
        self._log = (directory / "log").open("ab")
        self._process = subprocess.Popen(
            [sys.executable, "-c", text, addresses, str(directory)],
            env={
                **os.environ,
                "SPARK_LOCAL_IP": "127.0.0.1",
                "PYTHONPATH": PYTHONPATH,
                "PYSPARK_PYTHON": sys.executable,
            },
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )

    def stop(self) -> None:
        """Ask the driver to end."""
        self._process.send_signal(signal.SIGTERM)

    def ended(self) -> int:
        """Return its exit status."""
        return self._process.wait(START * 2)

    def kill(self) -> None:
        """Kill all of it at once; some of the driver's workers, and its JVM, are in other
        groups."""
        group = self._process.pid
        found = subprocess.run(
            ["ps", "-s", str(group), "-o", "pid="], capture_output=True, text=True, check=False
        )
        for pid in map(int, found.stdout.split()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._process.wait()
        self._log.close()


def length(nodes: list[LiveNode], queue: str = "q") -> int:
    return sum(int(str(node.ask("QLEN", queue))) for node in nodes)


def test_a_stream_is_written_once_over_kills_of_drivers_and_a_node(
    cluster: ClusterFactory, tmp_path: Path
) -> None:
    nodes = cluster(3)
    (tmp_path / "in").mkdir()
    wanted: Counter[str] = Counter()
    for file in range(FILES):
        bodies = [f"body {file} {n % (ROWS - 100)}" for n in range(ROWS)]
        wanted.update(bodies)
        lines = "\n".join(json.dumps({"body": body}) for body in bodies)
        (tmp_path / "in" / f"{file}.json").write_text(lines)
    for part in range(3):
        program = Program(STREAM, nodes, tmp_path)
        least = (part + 1) * ROWS + ROWS // 2  # in the middle of a batch
        try:
            wait_until(lambda least=least: length(nodes) >= least, START)  # type: ignore[misc]
            if part == 2:
                nodes.pop(0).kill()
                assert program.ended() == 0, (tmp_path / "log").read_text()[-3000:]
        finally:
            program.kill()
    found: dict[bytes, str] = {}
    for node in nodes:
        reply = node.ask("JSCAN", 0, "BUSYLOOP", "REPLY", "all")
        assert isinstance(reply, list)
        found.update((job[1], job[job.index(b"body") + 1].decode()) for job in reply[1])
    assert Counter(found.values()) == wanted


def test_jobs_are_done_and_have_one_result_over_kills_of_the_driver(
    disque_server: NodeFactory, tmp_path: Path
) -> None:
    node = disque_server()
    for n in range(JOBS):
        node.ask("ADDJOB", "q", str(n), 0, "RETRY", 2)
    for least in JOBS // 4, JOBS // 2, None:
        program = Program(WORK, [node], tmp_path)
        try:
            if least is None:
                assert program.ended() == 0, (tmp_path / "log").read_text()[-3000:]
            else:
                wait_until(lambda least=least: length([node], "r") >= least, START)  # type: ignore[misc]
        finally:
            program.kill()
    reply = node.ask("JSCAN", 0, "BUSYLOOP", "REPLY", "all")
    assert isinstance(reply, list)
    jobs = [(job[job.index(b"queue") + 1], job[job.index(b"body") + 1]) for job in reply[1]]
    assert Counter(jobs) == {(b"r", b"%d" % n): 1 for n in range(JOBS)}
