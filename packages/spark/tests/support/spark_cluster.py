"""A standalone cluster of Spark: a master and workers, each a process with its own directory."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import pyspark

from packages.spark.tests.support import quick_java
from tests.support.harness import DRIVER_SECONDS, HANG_SECONDS, free_port, wait_until


class SparkCluster:
    """A context manager that starts the processes, and ends them and their executors.

    Attributes:
        master: its URL.
        conf: options of ``disque-pipeline`` and ``spark-submit`` for a program on it.
        environment: of such a program.
    """

    def __init__(self, directory: Path, workers: int = 2) -> None:
        self._directory = directory
        self._workers = workers
        self._processes: list[subprocess.Popen[bytes]] = []
        self._ui = free_port()
        port = free_port()
        self.master = f"spark://127.0.0.1:{port}"
        self.conf = (
            *("--master", self.master),
            *("--conf", "spark.executor.memory=512m"),
            *("--conf", "spark.executor.cores=1"),
            *("--conf", "spark.driver.memory=512m"),
            *("--conf", "spark.driver.host=127.0.0.1"),
            *("--conf", "spark.driver.bindAddress=127.0.0.1"),
            *("--conf", "spark.sql.shuffle.partitions=2"),
        )
        clean = {n: v for n, v in os.environ.items() if not n.startswith(("PY", "SPARK"))}
        self.environment: Mapping[str, str] = {
            **clean,
            **quick_java.ENVIRONMENT,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }

    def __enter__(self) -> Self:
        try:
            port = self.master.rpartition(":")[2]
            self._start("master", "--host", "127.0.0.1", "--port", port, ui=self._ui)
            wait_until(lambda: _listens(int(port)), DRIVER_SECONDS)
            for number in range(self._workers):
                self.add_worker(f"worker{number}")
            wait_until(lambda: self.alive() == self._workers, DRIVER_SECONDS)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            _kill(process)

    def add_worker(self, name: str) -> None:
        """Start another worker."""
        place = self._directory / name
        options = ("--cores", "1", "--memory", "1g", "--work-dir", str(place / "work"))
        self._start(name, *options, self.master, ui=free_port(), kind="worker.Worker")

    def kill_worker(self) -> None:
        """Kill the first worker, its executors, and their Python workers, as in a power failure."""
        _kill(self._processes.pop(1))

    def alive(self) -> int:
        """The number of workers that the master considers alive."""
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self._ui}/json/", timeout=HANG_SECONDS
            ) as page:
                state = json.load(page)
        except OSError:
            return -1
        return sum(worker["state"] == "ALIVE" for worker in state["workers"])

    def _start(self, name: str, *options: str, ui: int, kind: str = "master.Master") -> None:
        place = self._directory / name
        place.mkdir(parents=True)
        home = Path(pyspark.__file__).parent
        with (self._directory / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [
                    str(home / "bin" / "spark-class"),
                    f"org.apache.spark.deploy.{kind}",
                    *("--webui-port", str(ui)),
                    *options,
                ],
                cwd=place,
                env={
                    **self.environment,
                    "SPARK_HOME": str(home),
                    "SPARK_DAEMON_MEMORY": "128m",
                    "SPARK_WORKER_DIR": str(place / "work"),
                    "SPARK_LOCAL_DIRS": str(place / "local"),
                    "TMPDIR": str(place),
                },
                stdout=log,
                stderr=log,
                start_new_session=True,  # the session includes executors
            )
        self._processes.append(process)


def _listens(port: int) -> bool:
    with socket.socket() as place:
        return place.connect_ex(("127.0.0.1", port)) == 0


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process and its whole session: a worker's executors and their Python workers, which
    may be in separate process groups."""
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
            if int(fields[3]) == process.pid:
                os.kill(int(status.parent.name), signal.SIGKILL)
        except (OSError, ValueError):
            pass
    process.wait(HANG_SECONDS)
