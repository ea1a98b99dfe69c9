"""A Spark program that tests kill, and the files that it leaves."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow.dataset
import pytest

from packages.spark.tests.support.crash_app import ROWS, Points
from packages.spark.tests.support.spark_home import spark_home
from tests.support import PYTHONPATH
from tests.support.harness import DRIVER_SECONDS, HANG_SECONDS, LiveNode, wait_until

LONG = bool(os.environ.get("DISQUE_SPARK_CRASHES"))
LONG_ONLY = pytest.mark.skipif(not LONG, reason="half a minute each; set DISQUE_SPARK_CRASHES")
JOBS = 600  # before each kill, more than a batch
TWO_EXECUTORS = "local-cluster[2,1,512]"
SOON = 6  # s, retry time for tests that wait for it
LATE = 600  # s, retry time for tests in which it must not expire


class Application:
    """``crash_app``, and the files that it leaves in its directory.

    Args:
        what: the method to run.
        master: of Spark.
    """

    def __init__(
        self,
        directory: Path,
        nodes: list[LiveNode],
        what: str,
        master: str = "local[2]",
    ) -> None:
        self.directory = directory
        self.points = Points(directory)
        self.nodes = nodes
        self.produced = 0
        self._what = what
        self._master = master
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir()

    def start(self) -> None:
        for name in ("jvm", "stop"):
            (self.directory / name).unlink(missing_ok=True)
        environment = {
            **os.environ,
            "PYTHONPATH": PYTHONPATH,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_HOME": str(spark_home(self.directory / "spark")),
        }
        addresses = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        script = str(Path(__file__).with_name("crash_app.py"))
        words = [
            script,
            str(self.directory),
            addresses,
            "q",
            self._what,
            self._master,
        ]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *words],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def produce(self, node: LiveNode, retry: int) -> None:
        """Add jobs with two copies."""
        wire = node.wire()
        for n in range(self.produced, self.produced + JOBS):
            wire.send("ADDJOB", "q", f"body {n}", 5000, "REPLICATE", 2, "RETRY", retry)
        for _ in range(JOBS):
            assert isinstance(wire.read(), bytes)
        wire.close()
        self.produced += JOBS

    def kill_at(self, point: str, *others: Callable[[int], None]) -> None:
        """Wait for a process to reach the point, and kill it; or call ``others`` with its id
        instead."""
        wait_until(partial(self.points.waiting, point), DRIVER_SECONDS)
        waiting = self.points.waiting(point)
        for other in others or (kill,):
            other(waiting)
        self.points.release(point)

    def driver(self, waiting: int) -> None:
        """Kill the driver's Python."""
        assert self._process is not None
        kill(self._process.pid)

    def java(self, waiting: int) -> None:
        """Kill the driver's JVM."""
        kill(int((self.directory / "jvm").read_text()))

    def executor(self, waiting: int) -> None:
        """Kill the JVM of the executor of the waiting process, or of any executor."""
        own = [pid for pid in executors() if waiting in descendants(pid)]
        jvm = int((self.directory / "jvm").read_text())
        kill((own or [pid for pid in executors() if pid in descendants(jvm)])[0])

    def node(self, waiting: int) -> None:
        """Kill the first node."""
        self.nodes[0].kill()

    def ended(self) -> None:
        """Wait for the end of the process and all its descendants."""
        assert self._process is not None
        self._process.wait(HANG_SECONDS)
        pid = (self.directory / "jvm").read_text()
        wait_until(lambda: not Path(f"/proc/{pid}").exists())

    def archived(self) -> list[str]:
        """The contents of complete files."""
        files = [
            str(path)
            for path in (self.directory / "archive").glob("batch=*/*.parquet")
            if (path.parent / "_SUCCESS").exists()
        ]
        table = pyarrow.dataset.dataset(files, format="parquet").to_table(["body"])
        return [body.decode() for body in table.column("body").to_pylist()]

    def is_archived(self) -> bool:
        """Whether no node has any job left."""
        return not any(jobs_at(node) for node in self.nodes if alive(node))

    def is_added(self) -> bool:
        """Whether all written rows are jobs."""
        return set(self.added()) == bodies(ROWS)

    def added(self) -> list[str]:
        """The bodies of the jobs, once for each job, however many copies it has."""
        found: dict[str, str] = {}
        for node in self.nodes:
            if alive(node):
                found.update(bodies_at(node))
        return list(found.values())

    def finish(self, done: Callable[[], bool]) -> None:
        """Wait until the work is done, and end it cleanly."""
        wait_until(done, DRIVER_SECONDS)
        (self.directory / "stop").touch()
        self.ended()

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(HANG_SECONDS)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def parents() -> dict[int, int]:
    """The parent of each process."""
    found: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        found[int(path.parent.name)] = int(fields[1])
    return found


def descendants(pid: int) -> set[int]:
    """The descendants of ``pid``."""
    parent_of = parents()
    found: set[int] = set()
    for child in parent_of:
        line = [child]
        while line[-1] in parent_of and line[-1] != pid:
            line.append(parent_of[line[-1]])
        if line[-1] == pid:
            found.update(line[:-1])
    return found


def executors() -> list[int]:
    """All Spark executors on this machine."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if b"org.apache.spark.executor.CoarseGrainedExecutorBackend" in words:
            found.append(int(path.parent.name))
    return found


def alive(node: LiveNode) -> bool:
    return node.process.poll() is None


def jobs_at(node: LiveNode) -> int:
    """The number of unacknowledged jobs of the queue on the node."""
    reply = node.ask("JSCAN", 0, "BUSYLOOP", "QUEUE", "q", "STATE", "queued", "STATE", "active")
    assert isinstance(reply, list)
    return len(reply[1])


def bodies_at(node: LiveNode) -> dict[str, str]:
    """The bodies of all unacknowledged jobs on a node, by id."""
    reply = node.ask("JSCAN", 0, "BUSYLOOP", "STATE", "queued", "STATE", "active", "REPLY", "all")
    assert isinstance(reply, list)
    jobs = [dict(zip(job[::2], job[1::2], strict=True)) for job in reply[1]]
    return {str(job[b"id"], "ascii"): str(job[b"body"], "ascii") for job in jobs}


def bodies(count: int) -> set[str]:
    return {f"body {n}" for n in range(count)}


Starting = Callable[..., Application]
