"""Runs tasks of any framework while workers and nodes die, and checks the result."""

import os
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.commands import start_command
from tests.support.harness import (
    HANG_SECONDS,
    ClusterFactory,
    LiveNode,
    start_process,
    wait_for_ping,
    wait_until,
)

TASKS = int(os.environ.get("TASK_STORIES", "120"))
LATEST = 8  # lines that were written in the last moments
FAULTS = ("worker", "node", "both", "leaving", "lost")
"""``lost``: one of three nodes is killed and does not come back."""
RETRY = 6
"""Seconds until the tasks of dead workers are redelivered; the machine may be busy."""


@dataclass
class Runs:
    """The runs of tasks, which workers record in a file: ``begin``, ``end`` or ``stop``, the name
    of the task and the process id of the worker."""

    file: Path
    killed: set[int] = field(default_factory=set)
    in_hand: set[str] = field(default_factory=set)

    def lines(self) -> list[list[str]]:
        """The words of each line, but for one that is just being written."""
        if not self.file.exists():
            return []
        *lines, _ = self.file.read_text().split("\n")
        return [line.split() for line in lines]

    def ended(self) -> set[str]:
        """The tasks that completed."""
        return {task for what, task, _ in self.lines() if what == "end"}

    def note_in_hand(self, since: int) -> None:
        """Note which tasks had begun and not ended at line ``since``, when a node was killed, were
        the last to end, or began until now, when it is back: what it gave to workers in the last
        millisecond, or more on a busy machine, it has not written down, and workers may have had
        that in hand without having begun it; and it may not have read that tasks ended."""
        lines = self.lines()
        before, after = lines[:since], lines[max(0, since - LATEST) :]
        ended = {task for what, task, _ in before if what == "end"}
        self.in_hand |= {task for what, task, _ in before if what == "begin"} - ended
        self.in_hand |= {task for _, task, _ in after}

    def check(self, tasks: set[str]) -> None:
        """Check that no task was lost, and that only tasks begun by a killed worker, or in hand
        when a node was killed, ran twice."""
        lines = self.lines()
        assert self.ended() == tasks
        begun = Counter(task for what, task, _ in lines if what == "begin")
        excused = {task for what, task, pid in lines if int(pid) in self.killed}
        assert {task for task, times in begun.items() if times > 1} <= excused | self.in_hand


def record(file: str, what: str, task: str) -> None:
    """Write a line of ``Runs``; called by workers. A single write keeps lines intact."""
    line = f"{what} {task} {os.getpid()}\n"
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, line.encode())
    os.close(descriptor)


class Workers:
    """Worker processes, two at a time. Their output goes to a file.

    Args:
        command: a module and its arguments.
    """

    def __init__(self, command: Sequence[str], env: dict[str, str], directory: Path) -> None:
        self._command = command
        self._env = os.environ | env
        self._directory = directory
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> subprocess.Popen[bytes]:
        log = self._directory / f"worker-{len(self.processes)}.log"
        with log.open("wb") as output:
            streams = {"stdout": output, "stderr": output}
            process = start_command(*self._command, env=self._env, cwd=self._directory, **streams)
        self.processes.append(process)
        return process

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait(HANG_SECONDS)


def tell(
    fault: str,
    cluster: ClusterFactory,
    directory: Path,
    start: Callable[[Sequence[LiveNode], Path], Workers],
    enqueue: Callable[[Sequence[LiveNode], Sequence[str]], object],
) -> None:
    """Run tasks on two workers, inject ``fault`` in the middle, and check all results.

    Args:
        start: starts workers for these nodes, which ``record`` into this file.
        enqueue: adds tasks with these names.
    """
    options = ("--appendonly", "yes", "--appendfsync", "no")
    # One of three nodes may die, because everything is on two.
    nodes = cluster(3 if fault in ("leaving", "lost") else 1, *options)
    runs = Runs(directory / "runs")
    names = [f"task-{number}" for number in range(TASKS)]
    workers = start(nodes, runs.file)
    failures: list[BaseException] = []

    def add() -> None:
        try:
            enqueue(nodes, names)
        except BaseException as error:
            failures.append(error)

    producer = threading.Thread(target=add)
    restarted: list[LiveNode] = []
    try:
        victim = workers.start()
        workers.start()
        producer.start()
        wait_until(lambda: failures or len(runs.ended()) > TASKS / 5)
        if fault in ("worker", "both"):
            runs.killed.add(victim.pid)
            victim.kill()
        if fault in ("node", "both"):
            nodes[0].kill()
            killed_at = len(runs.lines())
            restarted.append(_again(nodes[0], options))
            runs.note_in_hand(killed_at)
        if fault == "lost":
            nodes[0].kill()
        if fault == "leaving":
            nodes[0].ask("CLUSTER", "LEAVING", "yes")
        if fault in ("worker", "both"):
            workers.start()
        producer.join(HANG_SECONDS)
        assert failures == []
        wait_until(lambda: len(runs.ended()) == TASKS)
        for process in workers.processes[1:]:
            process.send_signal(signal.SIGTERM)
        worked = {int(pid) for _, _, pid in runs.lines()}
        for process in workers.processes[1:]:
            status = process.wait(HANG_SECONDS)
            # A late worker may not have installed its signal handler yet.
            assert status == 0 or (status == -signal.SIGTERM and process.pid not in worked)
        runs.check(set(names))
    finally:
        workers.close()
        producer.join(HANG_SECONDS)
        for node in restarted:
            node.close()


def _again(node: LiveNode, options: Sequence[str]) -> LiveNode:
    port = ("--port", str(node.port), "--bind", node.host)
    again = start_process(node.directory, node.port, *port, *options)
    assert wait_for_ping(again), again.log.read_text()
    return again


def url(nodes: Sequence[LiveNode]) -> str:
    """The URL of the nodes for frameworks."""
    return ";".join(f"disque://{node.host}:{node.port}" for node in nodes)


def replicate(nodes: Sequence[LiveNode]) -> int:
    """The number of copies of a task."""
    return min(len(nodes), 2)
