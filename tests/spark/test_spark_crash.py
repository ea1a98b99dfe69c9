"""Real processes killed with -9 while a stream archives a queue: nothing produced is missing.

Kills at named points, one after the other with one checkpoint. Each of them alone, and with the
JVM as what dies, runs with ``DISQUE_SPARK_CRASHES`` set.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow.dataset
import pytest
from crash_app import Points
from harness import ClusterFactory, LiveNode, wait_until

TESTS = Path(__file__).parents[1]
LONG = bool(os.environ.get("DISQUE_SPARK_CRASHES"))
JOBS = 600  # before each kill; more than a batch


class Application:
    """``crash_app`` and what it leaves in its directory."""

    def __init__(self, directory: Path, nodes: list[LiveNode]) -> None:
        self.directory = directory
        self.points = Points(directory)
        self.nodes = nodes
        self.produced = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.directory.mkdir(exist_ok=True)
        for name in ("jvm", "stop"):
            (self.directory / name).unlink(missing_ok=True)
        paths = [str(TESTS.parent), str(TESTS), str(TESTS / "spark")]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        addresses = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        script = str(TESTS / "spark" / "crash_app.py")
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, script, str(self.directory), addresses, "q"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def produce(self, node: LiveNode) -> None:
        """Add jobs with two copies."""
        wire = node.wire()
        for n in range(self.produced, self.produced + JOBS):
            wire.send("ADDJOB", "q", f"body {n}", 5000, "REPLICATE", 2, "RETRY", 6)
        for _ in range(JOBS):
            assert isinstance(wire.read(), bytes)
        wire.close()
        self.produced += JOBS

    def kill_at(self, point: str, *others: LiveNode) -> None:
        """Wait for a process to come to the point, and kill it, after nodes."""
        wait_until(partial(self.points.waiting, point), 120)
        for other in others:
            other.kill()
        os.kill(self.points.waiting(point), signal.SIGKILL)
        (self.directory / f"at-{point}").unlink()

    def kill_java_at(self, point: str) -> None:
        """As ``kill_at``, but what dies is the JVM of the driver; who waited there goes on."""
        wait_until(partial(self.points.waiting, point), 120)
        os.kill(int((self.directory / "jvm").read_text()), signal.SIGKILL)
        (self.directory / f"at-{point}").unlink()
        self.ended()

    def ended(self) -> None:
        """Wait for the process to be gone, and all that it has started."""
        assert self._process is not None
        self._process.wait(60)
        pid = (self.directory / "jvm").read_text()
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), 60)

    def archived(self) -> list[str]:
        files = [
            str(path)
            for path in (self.directory / "archive").glob("batch=*/*.parquet")
            if (path.parent / "_SUCCESS").exists()
        ]
        table = pyarrow.dataset.dataset(files, format="parquet").to_table(["body"])
        return [body.decode() for body in table.column("body").to_pylist()]

    def expected(self) -> set[str]:
        return {f"body {n}" for n in range(self.produced)}

    def finish(self) -> None:
        """Wait until no node has a job, and end it in good order."""
        wait_until(lambda: not any(jobs_at(node) for node in self.nodes if alive(node)), 150)
        (self.directory / "stop").touch()
        self.ended()

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(10)


def alive(node: LiveNode) -> bool:
    return node.process.poll() is None


def jobs_at(node: LiveNode) -> int:
    """How many jobs the node holds that are not acknowledged."""
    reply = node.ask("JSCAN", 0, "BUSYLOOP", "STATE", "queued", "STATE", "active")
    assert isinstance(reply, list)
    return len(reply[1])


@pytest.fixture
def application(tmp_path: Path, cluster: ClusterFactory) -> Iterator[Application]:
    application = Application(tmp_path / "application", cluster(3))
    yield application
    application.close()


@pytest.mark.timeout(420)
def test_nothing_is_lost_when_workers_drivers_and_a_node_are_killed(
    application: Application,
) -> None:
    """A worker after GETJOB, another mid read with the node that most came from, the driver's
    reader between two ACKJOBs, then the driver after the sink's write; then it is started again."""
    first, second, third = application.nodes
    application.directory.mkdir()
    application.points.arm("got")
    application.produce(first)
    application.start()
    application.kill_at("got")
    application.points.arm("reading")
    application.produce(second)
    application.kill_at("reading", first)
    for point in ("acking", "sunk"):
        application.points.arm(point)
        application.produce(third)
        application.kill_at(point)
    application.ended()
    application.start()
    application.finish()
    archived = application.archived()
    assert set(archived) == application.expected()


@pytest.mark.skipif(not LONG, reason="takes a minute each; set DISQUE_SPARK_CRASHES")
@pytest.mark.timeout(420)
@pytest.mark.parametrize("what", ["process", "java"])
@pytest.mark.parametrize("point", ["planned", "got", "reading", "sunk", "acking"])
def test_nothing_is_lost_at_any_point(application: Application, point: str, what: str) -> None:
    application.directory.mkdir()
    application.points.arm(point)
    application.produce(application.nodes[0])
    application.start()
    if what == "java":
        application.kill_java_at(point)
    else:
        application.kill_at(point)
        if point == "sunk":
            application.ended()
    application.produce(application.nodes[1])
    if what == "java" or point == "sunk":
        application.start()
    application.finish()
    assert set(application.archived()) == application.expected()
