"""Worker processes, parents and the node are killed with SIGKILL while tasks run: none is lost, and
only tasks that were running in a killed process, or came from a killed node, run twice.

It only runs with WORKER_TASKS, the number of tasks (``make soak``: 5000).
"""

import os
import random
import signal
import time
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.harness import LiveNode, free_port, start_process, wait_for_ping, wait_until
from tests.support.worker_rig import Rig, Worker, worker_rig

TASKS = int(os.environ.get("WORKER_TASKS", "300"))
KILLS = max(4, TASKS // 250)
PROCESSES, CONCURRENCY = 2, 4
RETRY = 2
ARGUMENTS = ("--processes", "2", "--concurrency", "4", "--restarts", "1000", "--wait", "60")


class Story:
    """A worker and its node, and a record of what was killed when."""

    def __init__(self, rig: Rig, directory: Path) -> None:
        self.rig = rig
        self.kills: list[tuple[str, float]] = []
        self._directory = directory
        self.node = self._start_node()
        self._worker: Worker | None = None

    def _start_node(self) -> LiveNode:
        port = str(self.rig.port)
        options = ("--bind", "127.0.0.1", "--appendonly", "yes", "--appendfsync", "always")
        node = start_process(self._directory, self.rig.port, "--port", port, *options)
        assert wait_for_ping(node), node.log.read_text()
        return node

    @property
    def worker(self) -> Worker:
        """The current worker; a new one if its parent has ended."""
        if self._worker is None or self._worker.popen.poll() is not None:
            self._worker = self.rig.start(*ARGUMENTS)
        return self._worker

    def kill_process(self) -> None:
        """Kill one of the worker processes, once one serves."""
        wait_until(self.worker.pids)
        self._kill("process", lambda: os.kill(self.worker.pids()[0], signal.SIGKILL))

    def kill_node(self) -> None:
        """Kill the node and restart it."""
        self._kill("node", self.node.kill)
        self.node = self._start_node()

    def kill_both(self) -> None:
        """Kill a process and the node."""
        self.kill_process()
        self.kill_node()

    def kill_parent(self) -> None:
        """Kill the parent and start another one."""
        worker = self.worker
        self._kill("parent", lambda: worker.signal(signal.SIGKILL))
        worker.ends()  # self.worker would start another one

    def _kill(self, who: str, kill: Callable[[], object]) -> None:
        try:
            kill()
        except (ProcessLookupError, IndexError):
            return  # it has just ended
        self.kills.append((who, time.time()))


@pytest.mark.skipif("WORKER_TASKS" not in os.environ, reason="set WORKER_TASKS, to 300 or more")
def test_no_task_is_lost_and_none_runs_twice_without_a_kill(tmp_path: Path) -> None:
    dice = random.Random(7)
    with worker_rig(tmp_path, free_port()) as rig:
        story = Story(rig, tmp_path)
        try:
            for first in range(0, TASKS, 500):
                numbers = range(first, min(first + 500, TASKS))
                rig.add_all("some", [[n] for n in numbers], retry=RETRY)
            kinds = [story.kill_process, story.kill_node, story.kill_both, story.kill_parent]
            for number in range(KILLS):
                assert story.worker
                wanted = TASKS * (number + 1) // (KILLS + 2)
                wait_until(lambda wanted=wanted: len(ended(rig)) >= wanted)
                kind = kinds[number] if number < len(kinds) else dice.choice(kinds)
                kind()
            assert story.worker
            wait_until(lambda: len(ended(rig)) == TASKS)
            wait_until(lambda: jobs_left(rig) == 0)
            assert story.worker.stop() == 0
        finally:
            story.node.close()
        assert ended(rig) == {str(n) for n in range(TASKS)}
        again = runs_without_kills(rig, story)
        assert again["without a kill"] == 0, again
        # Per kill, at most the tasks that were running; a killed node releases all of them.
        assert again["after one"] <= len(story.kills) * PROCESSES * CONCURRENCY, again
        print(f"{TASKS} tasks, {len(story.kills)} kills, run twice: {again}")


def ended(rig: Rig) -> set[str]:
    """Return the numbers of the tasks that have ended."""
    return {words[1] for words in rig.notes("ended")}


def jobs_left(rig: Rig) -> int:
    """Return how many jobs the node still has."""
    with rig.client() as client:
        return len(list(client.jscan(queue="mail")))


def runs_without_kills(rig: Rig, story: Story) -> dict[str, int]:
    """Count the repeated runs of tasks, by whether there was a kill since the start of the
    previous run."""
    begun: defaultdict[str, list[float]] = defaultdict(list)
    for _, number, moment, _ in rig.notes("begun"):
        begun[number].append(float(moment))
    counts = {"without a kill": 0, "after one": 0}
    for moments in begun.values():
        for before, after in pairwise(sorted(moments)):
            killed = any(before - 0.1 <= moment <= after for _, moment in story.kills)
            counts["after one" if killed else "without a kill"] += 1
    return counts
