"""Takes, acknowledges and adds jobs in turn while few or many others are in the same queue.

``queues`` runs this in its own process, measured with either the clock or callgrind.
"""

from __future__ import annotations

import gc
import json
import random
import time
from collections.abc import Callable, Sequence
from statistics import median

import hiredis

from disque_trio.node.core.node import Node
from disque_trio.node.core.queues.queue import Queue
from disque_trio.respserver.client import Client
from tools.bench.guard_paths import BASE, Callgrind, Counter
from tools.bench.inprocess import BODY, QUEUE, START, id_in, make_node

COMMANDS = ("GETJOB", "ACKJOB", "ADDJOB")
# Jobs taken at once: with ``fifo`` there can be no more than groups.
BATCH = 50
BATCHES = 20
GROUP_JOBS = 100  # jobs per group
PRIORITIES = 8
A_MILLISECOND = 100  # jobs added in one millisecond

Options = Callable[[int, int], tuple[bytes, ...]]
"""Returns the options of ADDJOB for a job's number, in a queue with this many jobs."""


def _none(number: int, jobs: int) -> tuple[bytes, ...]:
    return ()


def _priority(number: int, jobs: int) -> tuple[bytes, ...]:
    # Pseudorandom, and the same each time.
    return (b"PRIORITY", b"%d" % random.Random(number).randrange(PRIORITIES))


def _group(number: int, jobs: int) -> tuple[bytes, ...]:
    return (b"GROUP", b"%d" % (number % max(jobs // GROUP_JOBS, BATCH)))


KINDS: dict[str, tuple[tuple[bytes, ...], Options]] = {
    "plain": ((), _none),
    "priorities": ((), _priority),
    "fair": ((b"GROUPS", b"fair"), _group),
    "fifo": ((b"GROUPS", b"fifo"), _group),
}
"""The options of QSET for the queue, and of ADDJOB for its jobs."""


class Clock:
    """Measures CPU time in ns; ``found`` has the cost of a command in each round, by path."""

    def __init__(self) -> None:
        self.found: dict[str, list[float]] = {}
        self._total = 0
        self._since = 0

    def toggle(self) -> None:
        """Start or stop counting."""
        now = time.process_time_ns()
        if self._since:
            self._total += now - self._since
            self._since = 0
        else:
            self._since = now

    def name(self, path: str, commands: int, turns: int) -> None:
        """Attribute the counts since the last call to ``commands`` commands of ``path``."""
        self.found.setdefault(path, []).append(self._total / commands)
        self._total = 0


class Subject:
    """A node with ``jobs`` jobs in one queue of a kind."""

    def __init__(self, kind: str, jobs: int) -> None:
        policy, self._options = KINDS[kind]
        self._path = f"{kind}/{jobs}"
        self._jobs = jobs
        self._node: Node = make_node()
        self._client = Client(1)
        self._reader = hiredis.Reader()
        self._number = 0
        if policy:
            self._serve([[b"QSET", QUEUE, *policy]])
        # A queue's policy takes effect once the queue exists and somebody requests its jobs.
        self._serve([[b"ADDJOB", QUEUE, BODY, b"0"]])
        taken = self._serve([[b"GETJOB", b"NOHANG", b"FROM", QUEUE]])
        self._serve([[b"ACKJOB", id_in(taken[0])]])
        for _ in range(0, jobs, BATCH):
            self._serve(self._adds())

    @property
    def queue(self) -> Queue:
        """The queue."""
        return self._node.queues.by_name[QUEUE]

    def measure(self, counter: Counter) -> None:
        """Count each command separately."""
        for command in COMMANDS:
            for _ in range(BATCHES):
                self._life(command, counter)
            counter.name(f"{self._path}/{command}", BATCH * BATCHES, BATCHES)

    def warm(self) -> None:
        """Warm up the interpreter."""
        self._life("", Clock())

    def _life(self, command: str, counter: Counter) -> None:
        """Take, acknowledge and replace some jobs; count ``command``."""
        requests = [[b"GETJOB", b"NOHANG", b"FROM", QUEUE]] * BATCH
        taken = self._serve(requests, counter if command == "GETJOB" else None)
        ends = [[b"ACKJOB", id_in(reply)] for reply in taken]
        ended = self._serve(ends, counter if command == "ACKJOB" else None)
        self._serve(self._adds(), counter if command == "ADDJOB" else None)
        if ended != [1] * BATCH or self.queue.length < self._jobs:
            raise RuntimeError(f"{self._path}: not all jobs were taken, ended and added")

    def _adds(self) -> list[list[bytes]]:
        numbers = range(self._number, self._number + BATCH)
        self._number += BATCH
        return [[b"ADDJOB", QUEUE, BODY, b"0", *self._options(n, self._jobs)] for n in numbers]

    def _serve(self, requests: list[list[bytes]], counter: Counter | None = None) -> list[object]:
        """Serve ``requests``; returns the replies. Raises RuntimeError if one is an error."""
        node, client = self._node, self._client
        now = START + self._number // A_MILLISECOND
        if counter is not None:
            counter.toggle()
        for words in requests:
            node.command(client, words, now)
        node.commit()
        if counter is not None:
            counter.toggle()
        self._reader.feed(b"".join(client.out))
        client.out.clear()
        replies: list[object] = [self._reader.gets() for _ in requests]
        for reply in replies:
            if reply is False or isinstance(reply, hiredis.ReplyError):
                raise RuntimeError(f"{self._path}: {reply}")
        return replies


def run(counter: Counter, kinds: Sequence[str], sizes: Sequence[int], rounds: int) -> None:
    """Measure all kinds with all numbers of jobs, in turn in each round."""
    for _ in range(BATCHES):
        counter.toggle()
        counter.toggle()
    counter.name(BASE, 1, BATCHES)
    for kind in kinds:
        subjects = [Subject(kind, jobs) for jobs in sizes]
        for subject in subjects:
            subject.warm()
        for _ in range(rounds):
            for subject in subjects:
                subject.measure(counter)


def main(marks: str, rounds: str, kinds: str, *sizes: str) -> None:
    """Measure. ``marks`` is the library that controls callgrind; if empty, prints the median CPU
    times in ns by path, as JSON."""
    gc.disable()
    counter: Counter = Callgrind(marks) if marks else Clock()
    run(counter, kinds.split(","), list(map(int, sizes)), int(rounds))
    if isinstance(counter, Clock):
        print(json.dumps({path: median(costs) for path, costs in counter.found.items()}))
