"""Worker processes, parents and the node are killed with SIGKILL while tasks run: none is lost, and
only tasks that were in hand at a kill run twice.

A process that lives runs no task twice, whatever becomes of its node. Before each kill, the node
takes the outcomes of the tasks that have ended so far: none of them runs again.
"""

import os
import random
import signal
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

from tests.support.harness import LiveNode, free_port, start_process, wait_for_ping, wait_until
from tests.support.worker_rig import Rig, Worker, worker_rig

TASKS = int(os.environ.get("WORKER_TASKS", "200"))
"""The number of tasks (``make soak``: 5000)."""

KILLS = max(4, TASKS // 250)
PROCESSES, CONCURRENCY = 2, 4
SECONDS = 0.2  # of each task, so that several are in hand at a kill
RETRY = 20  # longer than the node is away
ARGUMENTS = ("--processes", "2", "--concurrency", "4", "--restarts", "1000", "--wait", "60")


class Story:
    """A worker and its node.

    Attributes:
        kills: what was killed, and when.
        over: the numbers of tasks whose outcomes the node had taken, and when that was seen: from
            then on they may not run.
        ids: the ids of their jobs, by number.
    """

    def __init__(self, rig: Rig, directory: Path) -> None:
        self.rig = rig
        self.kills: list[tuple[str, float]] = []
        self.over: dict[str, float] = {}
        self.ids: list[str] = []
        self._directory = directory
        self.node = self._start_node()
        self._worker: Worker | None = None

    def _start_node(self) -> LiveNode:
        port = str(self.rig.port)
        options = ("--bind", "127.0.0.1", "--appendonly", "yes", "--appendfsync", "always")
        node = start_process(self._directory, self.rig.port, "--port", port, *options)
        assert wait_for_ping(node), node.log.read_text()
        return node

    def add(self, count: int) -> None:
        """Add this many jobs."""
        numbers = range(len(self.ids), len(self.ids) + count)
        self.ids += self.rig.add_all("some", [[n, SECONDS] for n in numbers], retry=RETRY)

    @property
    def worker(self) -> Worker:
        """The current worker; a new one if its parent has ended."""
        if self._worker is None or self._worker.popen.poll() is not None:
            self._worker = self.rig.start(*ARGUMENTS)
        return self._worker

    def ended(self) -> set[str]:
        """The numbers of the tasks that have ended."""
        return {words[1] for words in self.rig.notes("ended")}

    def reach(self, count: int) -> None:
        """Wait until this many tasks have ended."""
        wait_until(lambda: len(self.ended()) >= count)

    def left(self) -> set[str]:
        """The numbers of the tasks whose jobs the node still has."""
        with self.rig.client() as client:
            left = set(client.jscan(queue="mail"))
        return {str(number) for number, id in enumerate(self.ids) if id in left}

    def kill_process(self) -> None:
        """Kill one of the worker processes, once one serves."""
        wait_until(self.worker.pids)
        self._settle()
        self._kill_process()

    def kill_node(self) -> None:
        """Kill the node, and restart it once all tasks in hand have ended."""
        self._settle()
        self._kill("node", self.node.kill)
        wait_until(lambda: self.worker.status().get("in_hand") == 0)
        self.node = self._start_node()

    def kill_both(self) -> None:
        """Kill a process and the node."""
        wait_until(self.worker.pids)
        self._settle()
        self._kill_process()
        self._kill("node", self.node.kill)
        self.node = self._start_node()

    def kill_parent(self) -> None:
        """Kill the parent and start another one."""
        worker = self.worker
        self._settle()
        self._kill("parent", lambda: worker.signal(signal.SIGKILL))
        worker.ends()  # self.worker would start another one
        worker.status()
        (self.rig.directory / "status").unlink(missing_ok=True)  # it tells of dead processes

    def _settle(self) -> None:
        """Wait until the node has taken the outcomes of the tasks that have ended so far."""
        ended = self.ended()
        wait_until(lambda: not ended & self.left())
        settled = time.time()
        self.over |= dict.fromkeys(ended - self.over.keys(), settled)

    def _kill_process(self) -> None:
        for pid in self.worker.pids()[:1]:
            self._kill(f"process {pid}", partial(os.kill, pid, signal.SIGKILL))

    def _kill(self, who: str, kill: Callable[[], object]) -> None:
        try:
            kill()
        except ProcessLookupError:
            return  # it has just ended
        self.kills.append((who, time.time()))


def test_only_tasks_in_hand_at_a_kill_run_twice_and_none_is_lost(tmp_path: Path) -> None:
    dice = random.Random(7)
    with worker_rig(tmp_path, free_port()) as rig:
        story = Story(rig, tmp_path)
        try:
            share = TASKS // (KILLS + 1)
            kinds = [story.kill_process, story.kill_node, story.kill_both, story.kill_parent]
            for number in range(KILLS):
                wanted = len(story.ids) + share // 4
                story.add(share)
                assert story.worker
                story.reach(wanted)
                kind = kinds[number] if number < len(kinds) else dice.choice(kinds)
                kind()
            story.add(TASKS - len(story.ids))
            assert story.worker
            story.reach(TASKS)
            wait_until(lambda: not story.left())
            wait_until(story.worker.pids)  # it heeds signals
            assert story.worker.stop() == 0
        finally:
            story.node.close()
        assert story.ended() == {str(n) for n in range(TASKS)}
        again = judge(story)
        # Per kill, at most the tasks that were running; a killed node releases all of them.
        assert again <= len(story.kills) * PROCESSES * CONCURRENCY
        print(f"{TASKS} tasks, {len(story.kills)} kills, run twice: {again}")


def judge(story: Story) -> int:
    """Check that no task ran again that must not; return how many runs were repeated."""
    begun: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
    for _, number, moment, pid in story.rig.notes("begun"):
        begun[number].append((float(moment), pid))
    again = 0
    for number, runs in begun.items():
        runs.sort()
        for (before, first), (after, second) in pairwise(runs):
            again += 1
            told = f"task {number}: begun {before} in {first}, {after} in {second}; {story.kills}"
            assert first != second, f"twice in a process that lived: {told}"
            assert after < story.over.get(number, after + 1), f"although it had ended: {told}"
            between = [who for who, moment in story.kills if before - 1 <= moment <= after]
            if f"process {first}" not in between:
                assert "node" in between, f"without a kill: {told}"
                # A node may forget what it delivered in its last moment, and delivers it at its
                # start. Other jobs come again after their retry time: the worker forgot them.
                assert after - before < RETRY, f"although its process lived: {told}"
    return again
