"""Celery tasks while processes are killed: none is lost, and only tasks in killed processes run
twice. ``CELERY_TASKS`` sets how many there are; ``make soak`` runs more."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from packages.integrations.tests.support.celery_app import program, ran
from tests.support import ROOT
from tests.support.harness import (
    HANG_SECONDS,
    ClusterFactory,
    LiveNode,
    NodeFactory,
    start_process,
    wait_for_ping,
    wait_until,
)

TASKS = int(os.environ.get("CELERY_TASKS", "300"))
PROCESSES = 2
IN_HAND = 4 * PROCESSES
"""Tasks that a worker has at once: four times as many as its processes, unless it is told."""

pytestmark = pytest.mark.timeout(300 + TASKS / 10)


class Workers:
    """Workers with a prefork pool, each the leader of a group of processes."""

    def __init__(self, node: LiveNode, file: Path) -> None:
        self._environment = {
            **os.environ,
            "CELERY_BROKER": f"disque://{node.host}:{node.port}",
            "CELERY_FILE": str(file),
        }
        self._log = file.with_suffix(".log")
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self) -> "subprocess.Popen[bytes]":
        command = [
            sys.executable,
            "-m",
            "celery",
            "-A",
            "packages.integrations.tests.support.celery_app",
            "worker",
        ]
        command += ["--pool", "prefork", "--concurrency", str(PROCESSES), "-n", "w@%h"]
        with self._log.open("ab") as log:
            worker = subprocess.Popen(
                command,
                cwd=ROOT,
                env=self._environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._running.append(worker)
        return worker

    def kill(self, worker: "subprocess.Popen[bytes]") -> None:
        """Kill it and its children at once."""
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait(HANG_SECONDS)

    def close(self) -> None:
        for worker in self._running:
            if worker.poll() is None:
                self.kill(worker)


@pytest.fixture
def node(disque_server: NodeFactory) -> LiveNode:
    return disque_server("--appendonly", "yes")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "ran"


@pytest.fixture
def workers(node: LiveNode, file: Path) -> Iterator[Workers]:
    workers = Workers(node, file)
    yield workers
    workers.close()


def test_kills(node: LiveNode, workers: Workers, file: Path) -> None:
    """Kill a child, a worker and the node, each after another quarter of the tasks has started."""
    worker = workers.start()
    with program(f"disque://{node.host}:{node.port}") as app:
        for number in range(TASKS):
            app.tasks["told"].apply_async((str(number), 0.005), ignore_result=True)

    def begun(quarters: int) -> bool:
        return len({name for name, _ in ran(file)}) >= quarters * TASKS // 4

    wait_until(lambda: begun(1), HANG_SECONDS + TASKS / 20)
    child = ran(file)[-1][1]
    assert child != worker.pid
    os.kill(child, signal.SIGKILL)

    wait_until(lambda: begun(2), HANG_SECONDS + TASKS / 20)
    workers.kill(worker)
    worker = workers.start()

    wait_until(lambda: begun(3), HANG_SECONDS + TASKS / 20)
    node.kill()
    restarted = start_process(
        node.directory,
        node.port,
        "--port",
        str(node.port),
        "--bind",
        node.host,
        "--appendonly",
        "yes",
    )
    try:
        assert wait_for_ping(restarted)
        wait_until(lambda: begun(4), HANG_SECONDS + TASKS / 20)
        wait_until(lambda: restarted.info("jobs")["registered_jobs"] == "0")
        times = Counter(name for name, _ in ran(file))
        assert len(times) == TASKS
        # The child had one task, the worker its prefetched ones, the node those not in its file.
        assert sum(times.values()) - TASKS <= 1 + IN_HAND
        # On a busy machine the tasks may have ended before the first worker was killed, and this
        # one may not have begun: until it serves, a signal just kills it.
        with program(f"disque://{node.host}:{node.port}") as app:
            app.tasks["told"].apply_async(("last", 0), ignore_result=True)
        wait_until(lambda: ran(file)[-1][0] == "last")
        worker.terminate()
        assert worker.wait(HANG_SECONDS) == 0
    finally:
        restarted.close()


def test_leaving(cluster: ClusterFactory, file: Path) -> None:
    """The node that the program and the worker use leaves its cluster: they continue at others that
    they discovered, and each task runs once."""
    leaves, *_ = cluster(3)
    url = f"disque://{leaves.host}:{leaves.port}"
    workers = Workers(leaves, file)
    worker = workers.start()
    try:
        with program(url, broker_transport_options={"replicate": 2}) as app:
            for name in range(TASKS):
                if name == TASKS // 2:
                    leaves.ask("CLUSTER", "LEAVING", "yes")
                app.tasks["told"].apply_async((str(name), 0.005), ignore_result=True)
            limit = HANG_SECONDS + TASKS / 20
            wait_until(lambda: len({name for name, _ in ran(file)}) == TASKS, limit)
            assert len(ran(file)) == TASKS
        worker.terminate()
        assert worker.wait(HANG_SECONDS) == 0
    finally:
        workers.close()
